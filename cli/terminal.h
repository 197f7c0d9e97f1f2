/* terminal.h -- what the terminal of this program can do. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H
#include <stdbool.h>

/* stdin and stdout are a terminal that can place its cursor. On any other, TERM=dumb or a TERM that
 * is not known, initscr would end the program. */
bool terminal_can_draw(void);
#endif

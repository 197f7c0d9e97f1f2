/* terminal.c -- asks terminfo. A file of its own: term.h defines macros like `columns`. */
#include "terminal.h"

#include <curses.h>
#include <term.h>
#include <unistd.h>

bool terminal_can_draw(void)
{
    const char *move;
    int known = 0;

    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO) ||
        setupterm(NULL, STDOUT_FILENO, &known) != OK || known != 1)
        return false;
    move = tigetstr("cup");
    return move && move != (const char *)-1;
}

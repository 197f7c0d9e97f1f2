/* stop.h -- Ctrl-C and SIGTERM ask to stop; a second one stops at once. */
#ifndef CLI_STOP_H
#define CLI_STOP_H

void stop_catch(void);
/* SIGUSR1 too: a scheduler sends it before it takes the node. */
void stop_catch_usr1(void);
/* The signal that asked, or 0. */
int stop_asked(void);
#endif

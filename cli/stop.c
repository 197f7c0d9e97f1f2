#include "stop.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t asked;

static void ask(int number)
{
    asked = number;
}

void stop_catch(void)
{
    struct sigaction action = { .sa_handler = ask };

    sigemptyset(&action.sa_mask);
    /* The handler is gone after the first: a user who presses twice does not want to wait. */
    action.sa_flags = (int)SA_RESETHAND | SA_RESTART;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void stop_catch_usr1(void)
{
    struct sigaction action = { .sa_handler = ask, .sa_flags = (int)SA_RESETHAND | SA_RESTART };

    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
}

int stop_asked(void)
{
    return asked;
}

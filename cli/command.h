/* command.h -- one command of the program: its row in the table of main.c. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_BAD_USE = 2, EXIT_SIGNAL = 128 };

struct command {
    const char *name;
    const char *usage;   /* behind "forebay NAME" */
    const char *summary; /* one line for the overview */
    const char *help;    /* the rest of --help */
    int (*run)(int argc, char **argv); /* argv[0] is the name; NULL: not built yet */
};

extern const struct command command_run, command_inspect, command_plan, command_pack;
extern const struct command command_top, command_set, command_cache, command_monitor;
extern const struct command command_diagnose, command_generate;
#endif

/* main.c -- `forebay COMMAND`: the table of commands; each is one file, cmd_<command>.c. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "command.h"
#include "options.h"
#include "output.h"

/* A command whose part is not built yet: it says so, whatever it is given. */
#define LATER(command_name, command_usage, command_summary)                        \
    &(const struct command)                                                        \
    {                                                                              \
        .name = command_name, .usage = command_usage, .summary = command_summary   \
    }

/* In the order in which one needs them. */
static const struct command *const commands[] = {
    &command_run,
    &command_inspect,
    &command_plan,
    LATER("tune", "CONFIG [--json]", "measure, choose and write the settings"),
    &command_pack,
    &command_top,
    &command_set,
    &command_cache,
    &command_monitor,
    LATER("report", "LOG...", "one HTML page with charts and a verdict"),
    &command_diagnose,
    &command_generate,
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int overview_print(void)
{
    printf("forebay %s -- a training data loader that never exceeds its memory budget\n\n"
           "Usage: forebay COMMAND [ARGUMENTS]\n\nCommands:\n", FOREBAY_VERSION);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("  %-9s %s%s\n", commands[i]->name, commands[i]->summary,
               commands[i]->run ? "" : " (not built yet)");
    printf("\n"
           "  forebay run                a quickstart on data it generates itself\n"
           "  forebay run --help-config  every setting of a configuration\n"
           "  forebay help COMMAND       all about one command (also: forebay COMMAND --help)\n"
           "  forebay --version\n\n"
           "Results go to stdout, talk to stderr. With --json stdout is exactly one JSON object,\n"
           "for a failure {\"error\": {\"status\", \"message\", \"place\"}}. Exit codes: 0 done,\n"
           "1 failed, 2 bad use.\n");
    return EXIT_DONE;
}

static int help_print(const struct command *command)
{
    printf("Usage: forebay %s %s\n\n", command->name, command->usage);
    if (command->run)
        fputs(command->help, stdout);
    else
        printf("%c%s.\n\nThis command is not built yet.\n",
               command->summary[0] - 'a' + 'A', command->summary + 1);
    return EXIT_DONE;
}

static int unknown(const char *name, bool json)
{
    const char *names[COMMAND_COUNT], *near;
    forebay_error error;

    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i]->name;
    near = nearest_word(name, names, sizeof(names[0]), COMMAND_COUNT);
    if (name[0] == '-')
        fb_fail(&error, FOREBAY_BAD_USE, "there is no option %s", name);
    else if (near)
        fb_fail(&error, FOREBAY_BAD_USE, "there is no command '%s'; did you mean '%s'?", name,
                near);
    else
        fb_fail(&error, FOREBAY_BAD_USE, "there is no command '%s'", name);
    return output_bad_use(NULL, json, &error);
}

static int not_built(const struct command *command, bool json)
{
    forebay_error error;

    fb_fail(&error, FOREBAY_NOT_BUILT, "not built yet");
    return output_failure(command->name, json, &error);
}

static int help_command(int argc, char **argv)
{
    const struct command *command = argc > 1 ? command_find(argv[1]) : NULL;

    if (argc < 2)
        return overview_print();
    return command ? help_print(command) : unknown(argv[1], options_has(argc, argv, "--json"));
}

static int dispatch(int argc, char **argv)
{
    const struct command *command = argc > 1 ? command_find(argv[1]) : NULL;
    bool json = options_has(argc, argv, "--json");

    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return overview_print();
    if (strcmp(argv[1], "--version") == 0) {
        printf("forebay %s\n", FOREBAY_VERSION);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "help") == 0)
        return help_command(argc - 1, argv + 1);
    if (!command)
        return unknown(argv[1], json);
    if (options_has(argc - 1, argv + 1, "--help") || options_has(argc - 1, argv + 1, "-h"))
        return help_print(command);
    return command->run ? command->run(argc - 1, argv + 1) : not_built(command, json);
}

int main(int argc, char **argv)
{
    int code;

    signal(SIGXFSZ, SIG_IGN); /* a write above RLIMIT_FSIZE fails with EFBIG, which is told in words */
    code = dispatch(argc, argv);

    /* A result that could not be written is no result: a full disk, for one. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("forebay: the result could not be written");
        return code ? code : EXIT_FAILED;
    }
    return code;
}

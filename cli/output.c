#include "output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

json_t *output_text(const char *text)
{
    json_t *string = json_string(text);
    char *plain = string ? NULL : strdup(text);

    if (!plain)
        return string;
    for (char *at = plain; *at; at++)
        if ((unsigned char)*at >= 128)
            *at = '?';
    string = json_string(plain);
    free(plain);
    return string;
}

int output_json(json_t *object)
{
    /* Twelve digits say all that is measured; seventeen would print 0.1 as 0.10000000000000001. */
    int failed = !object || json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));

    json_decref(object);
    if (failed) {
        fprintf(stderr, "forebay: the result could not be written\n");
        return EXIT_FAILED;
    }
    putchar('\n');
    return EXIT_DONE;
}

static void say_failure(const char *command, const forebay_error *error)
{
    size_t length = strlen(error->place);
    bool said = strncmp(error->message, error->place, length) == 0;

    fprintf(stderr, "forebay%s%s: ", command ? " " : "", command ? command : "");
    /* file:line:column comes first, where editors look for it. */
    if (length && !said && !strstr(error->message, error->place))
        fprintf(stderr, "%s: ", error->place);
    fprintf(stderr, "%s\n", error->message);
}

int output_failure(const char *command, bool json, const forebay_error *error)
{
    say_failure(command, error);
    if (json)
        output_json(json_pack("{s:{s:s, s:o, s:o}}", "error", "status",
                              forebay_status_name(error->status), "message",
                              output_text(error->message), "place", output_text(error->place)));
    return EXIT_FAILED;
}

int output_bad_use(const char *command, bool json, const forebay_error *error)
{
    output_failure(command, json, error);
    if (command)
        fprintf(stderr, "Try 'forebay %s --help'.\n", command);
    else
        fprintf(stderr, "Try 'forebay --help'.\n");
    return EXIT_BAD_USE;
}

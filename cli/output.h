/* output.h -- results to stdout, failures to stderr, and with --json one object in either case. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H
#include <jansson.h>

#include "forebay.h"

/* A JSON string; bytes that are no UTF-8 (a path may hold any) become '?'. */
json_t *output_text(const char *text);
/* Print the object and a newline, and drop it. NULL: there was no memory for it. */
int output_json(json_t *object);

/* Say what failed, on stderr and with `json` as {"error": ...} on stdout; returns the exit code:
 * 2 if `bad_use`, else 1. */
int output_failure(const char *command, bool json, const forebay_error *error);
int output_bad_use(const char *command, bool json, const forebay_error *error);
#endif

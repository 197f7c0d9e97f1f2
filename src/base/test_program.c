#include "base/program.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void what_the_user_names_is_taken(void **state)
{
    char path[PATH_MAX];

    (void)state;
    setenv("FOREBAY_PROGRAM", "/opt/other/forebay", 1);
    fb_program_find(path);
    assert_string_equal(path, "/opt/other/forebay");
}

/* This test is not the command and stands in no folder that has bin/forebay above it. */
static void without_any_it_is_looked_for_in_PATH(void **state)
{
    char path[PATH_MAX];

    (void)state;
    unsetenv("FOREBAY_PROGRAM");
    fb_program_find(path);
    assert_non_null(strstr(path, "forebay"));
    assert_true(path[0] != '/' || access(path, X_OK) == 0);
    setenv("FOREBAY_PROGRAM", "", 1);
    fb_program_find(path);
    assert_true(path[0] != '\0');
}

/* A copy of this test, named as the command is, finds itself. */
static void the_command_finds_itself(void **state)
{
    char folder[] = "/tmp/forebay-test-program.XXXXXX", copy[sizeof(folder) + 16], line[PATH_MAX];
    char command[PATH_MAX + 64];
    FILE *output;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(copy, sizeof(copy), "%s/forebay", folder);
    snprintf(command, sizeof(command), "cp /proc/%d/exe %s && %s say", (int)getpid(), copy, copy);
    unsetenv("FOREBAY_PROGRAM");
    output = popen(command, "r");
    assert_non_null(output);
    assert_non_null(fgets(line, sizeof(line), output));
    assert_int_equal(pclose(output), 0);
    assert_string_equal(line, copy);
    unlink(copy);
    rmdir(folder);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_user_names_is_taken),
        cmocka_unit_test(without_any_it_is_looked_for_in_PATH),
        cmocka_unit_test(the_command_finds_itself),
    };

    if (argc == 2 && strcmp(argv[1], "say") == 0) {
        char path[PATH_MAX];

        fb_program_find(path);
        fputs(path, stdout);
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

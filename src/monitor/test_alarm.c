/* Alarms go off once at their threshold, and again only after it was calm. */
#include "monitor/alarm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/size.h"

static struct fb_config config;

static int read_alarms(struct fb_alarms *alarms, const char *const *settings, size_t count,
                       forebay_error *error)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;
    int status;

    options.settings = settings;
    options.setting_count = count;
    status = fb_config_read(&config, &options, NULL, error);
    return status ? status : fb_alarms_read(alarms, &config, error);
}

static struct fb_alarm_readings readings(uint64_t process, uint64_t available, uint64_t swap)
{
    struct fb_host_memory host = { .total_bytes = 100 * FB_GIB,
                                   .available_bytes = available,
                                   .swap_used_bytes = swap,
                                   .swap_total_bytes = 10 * FB_GIB };
    struct fb_alarm_readings now;

    fb_alarm_readings_host(&now, &host, process);
    return now;
}

static void each_threshold_is_read_or_refused(void **state)
{
    static const struct {
        const char *text;
        bool good, percent;
        double value;
    } rows[] = {
        { "40GiB", true, false, 40.0 * 1024 * 1024 * 1024 }, { "90%", true, true, 90 },
        { "40", false, false, 0 },                           { "4e9", false, false, 0 },
        { "12.5%", true, true, 12.5 },                       { "0%", false, false, 0 },
        { "101%", false, false, 0 },                         { "%", false, false, 0 },
        { "much", false, false, 0 },                         { "", false, false, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool percent;
        double value;

        assert_int_equal(fb_alarm_parse(rows[i].text, &percent, &value), rows[i].good);
        if (rows[i].good)
            assert_true(percent == rows[i].percent && value == rows[i].value);
    }
}

static void an_alarm_goes_off_once(void **state)
{
    const char *settings[] = { "monitor.alarm.process=40GiB", "monitor.alarm.system=90%",
                               "monitor.alarm.swap=50%" };
    struct fb_alarms alarms;
    struct fb_alarm_readings now;
    forebay_error error;
    char text[200];

    (void)state;
    assert_int_equal(read_alarms(&alarms, settings, 3, &error), FOREBAY_OK);
    now = readings(39 * FB_GIB, 50 * FB_GIB, 0);
    assert_false(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    now = readings(41 * FB_GIB, 50 * FB_GIB, 0);
    assert_true(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    assert_string_equal(text, "resident memory of the process, 41.0 GiB, exceeds 40.0 GiB");
    assert_false(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    now = readings(39 * FB_GIB, 50 * FB_GIB, 0); /* not calm enough yet */
    assert_false(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    now = readings(41 * FB_GIB, 50 * FB_GIB, 0);
    assert_false(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    now = readings(30 * FB_GIB, 50 * FB_GIB, 0);
    assert_false(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    now = readings(41 * FB_GIB, 5 * FB_GIB, 6 * FB_GIB); /* three at once: one a look */
    assert_true(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    assert_true(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    assert_non_null(strstr(text, "used memory of the system, 95.0 GiB"));
    assert_true(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    assert_non_null(strstr(text, "used swap"));
    assert_false(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    fb_config_release(&config);
}

static void what_is_unknown_sets_nothing_off(void **state)
{
    const char *settings[] = { "monitor.alarm.gpu=1%", "monitor.alarm.swap=1%" };
    struct fb_alarms alarms;
    struct fb_alarm_readings now = readings(FB_UNKNOWN, FB_GIB, FB_UNKNOWN);
    char text[200];

    (void)state;
    assert_int_equal(read_alarms(&alarms, settings, 2, NULL), FOREBAY_OK);
    assert_false(fb_alarm_check(&alarms, &now, text, sizeof(text)));
    fb_config_release(&config);
}

static void a_bad_threshold_names_its_key(void **state)
{
    const char *bad[] = { "monitor.alarm.swap=lots" }, *none[] = { "monitor.alarm.action=command" };
    struct fb_alarms alarms;
    forebay_error error;

    (void)state;
    assert_int_equal(read_alarms(&alarms, bad, 1, &error), FOREBAY_BAD_CONFIG);
    assert_non_null(strstr(error.message, "monitor.alarm.swap: 'lots'"));
    assert_string_equal(error.place, "--set monitor.alarm.swap");
    fb_config_release(&config);
    assert_int_equal(read_alarms(&alarms, none, 1, &error), FOREBAY_BAD_CONFIG);
    assert_non_null(strstr(error.message, "monitor.alarm.command"));
    fb_config_release(&config);
}

static void a_command_runs_without_a_shell_and_one_at_a_time(void **state)
{
    struct fb_alarms alarms = {
        .command = { (char[]){ "sh" }, (char[]){ "-c" },
                     (char[]){ "test \"$FOREBAY_ALARM\" = 'too much; rm -rf x'" } }
    };
    int status;

    (void)state;
    assert_true(fb_alarm_run(&alarms, "too much; rm -rf x"));
    assert_int_equal(waitpid((pid_t)alarms.child, &status, 0), alarms.child);
    assert_int_equal(WEXITSTATUS(status), 0);
    fb_alarm_reap(&alarms); /* somebody else waited for it: it is forgotten all the same */
    assert_int_equal(alarms.child, 0);
    alarms.command[0] = (char[]){ "/nowhere/command" };
    assert_false(fb_alarm_run(&alarms, "x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_threshold_is_read_or_refused),
        cmocka_unit_test(an_alarm_goes_off_once),
        cmocka_unit_test(what_is_unknown_sets_nothing_off),
        cmocka_unit_test(a_bad_threshold_names_its_key),
        cmocka_unit_test(a_command_runs_without_a_shell_and_one_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

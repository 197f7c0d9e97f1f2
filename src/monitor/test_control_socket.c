/* Requests to a running loader: answered, bounded, checked; nobody waits for anybody. */
#include "monitor/control_socket.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "config/config.h"

static unsigned sets;

static int set(void *data, const char *key, const char *value, forebay_set_result *result,
               forebay_error *error)
{
    char parsed[64];
    int status = fb_config_parse_live(key, value, parsed, error);

    (void)data;
    if (status)
        return status;
    if (!strcmp(value, "200"))
        return fb_fail(error, FOREBAY_OVER_BUDGET, "%s: too much", key);
    if (!result)
        return FOREBAY_OK;
    sets++;
    *result = (forebay_set_result){ .old_value = "1", .held_batches = 2 };
    snprintf(result->new_value, sizeof(result->new_value), "%.60s", value);
    return FOREBAY_OK;
}

static void each_request_has_its_answer(void **state)
{
    static const struct {
        const char *request, *reply;
        unsigned sets;
    } rows[] = {
        { "set workers=4", "{\"results\":[{\"key\":\"workers\",\"old\":\"1\",\"new\":\"4\","
                           "\"also\":\"\"}],\"held_batches\":2,\"held_bytes\":0}\n", 1 },
        { "set workers=4 prefetch=2 memory.budget=8GiB", "\"new\":\"8GiB\"", 3 },
        { "set", "nothing to set", 0 },
        { "get workers", "expected 'set", 0 },
        { "", "expected 'set", 0 },
        { "set workers", "expected key=value", 0 },
        { "set =4", "expected key=value", 0 },
        { "set workers=4 batch.size=3", "cannot change `batch.size`", 0 }, /* none, then */
        { "set worker=4", "did you mean `workers`", 0 },
        { "set workers=many", "BAD_CONFIG", 0 },
        { "set workers=2 workers=200", "OVER_BUDGET", 0 }, /* all or nothing */
        { "set workers=2 prefetch=", "the value is missing", 0 },
        { "set workers=\x01", "plain letters", 0 },
    };
    char reply[FB_CONTROL_REPLY_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sets = 0;
        fb_control_answer(rows[i].request, strlen(rows[i].request), set, NULL, reply);
        if (!strstr(reply, rows[i].reply) || sets != rows[i].sets)
            fail_msg("%s: %s (%u set)", rows[i].request, reply, sets);
    }
}

static void a_request_that_is_too_long_is_refused(void **state)
{
    char request[2 * FB_CONTROL_REQUEST_BYTES], reply[FB_CONTROL_REPLY_BYTES];

    (void)state;
    memset(request, 'x', sizeof(request));
    fb_control_answer(request, sizeof(request), set, NULL, reply);
    assert_non_null(strstr(reply, "at most 1023 bytes"));
}

static void server_wait(struct fb_control *control, int timeout_ms)
{
    struct pollfd fds[FB_CONTROL_FDS];

    fb_control_poll(control, fds);
    poll(fds, FB_CONTROL_FDS, timeout_ms);
    fb_control_serve(control);
}

/* Ask from a child, so that the server's turn can be taken here. */
static int ask_in_child(const struct fb_snapshot *page, const char *request, uid_t uid,
                        struct fb_control *control)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        char reply[FB_CONTROL_REPLY_BYTES];
        forebay_error error;

        if (uid && setresuid(uid, uid, uid))
            _exit(3);
        if (fb_control_ask(page, request, reply, &error))
            _exit(2);
        _exit(strstr(reply, "\"results\"") ? 0 : 1);
    }
    while (waitpid(child, &status, WNOHANG) == 0)
        server_wait(control, 10);
    return WEXITSTATUS(status);
}

static void the_same_user_is_answered_and_another_refused(void **state)
{
    struct fb_control *control;
    static struct fb_snapshot page;

    (void)state;
    assert_int_equal(fb_control_open(&control, set, NULL, NULL), FOREBAY_OK);
    fb_snapshot_identify(&page, "");
    snprintf(page.socket, sizeof(page.socket), "%s", fb_control_name(control));
    assert_int_equal(ask_in_child(&page, "set workers=3", 0, control), 0);
    assert_int_equal(ask_in_child(&page, "set nonsense=3", 0, control), 1);
    sets = 0;
    if (geteuid() == 0) {
        assert_int_equal(ask_in_child(&page, "set workers=3", 65534, control), 2);
        assert_int_equal(sets, 0);
    }
    page.pid++; /* somebody else answers: not trusted */
    assert_int_equal(ask_in_child(&page, "set workers=3", 0, control), 2);
    assert_int_equal(sets, 0);
    fb_control_close(control);
    page.pid--;
    assert_int_equal(fb_control_ask(&page, "set workers=3", (char[FB_CONTROL_REPLY_BYTES]){ "" },
                                    NULL), FOREBAY_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_request_has_its_answer),
        cmocka_unit_test(a_request_that_is_too_long_is_refused),
        cmocka_unit_test(the_same_user_is_answered_and_another_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

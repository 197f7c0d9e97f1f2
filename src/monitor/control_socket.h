/*
 * control_socket.h -- how `forebay set` reaches a running loader: one line there, one line back.
 *
 *     set workers=4 memory.budget=8GiB\n   ->   {"results": [{"key", "old", "new"}, ...], ...}\n
 *                                          or   {"error": {"status", "message", "place"}}\n
 *
 * The socket has an abstract name, told in the loader's page: nothing is left in the file system
 * when the process is killed. Both sides ask the kernel who the other is: the same user, or
 * nothing. Requests are bounded, no side waits for the other for long, and the server never waits:
 * it looks at its sockets when the governor's thread wakes.
 */
#ifndef FB_MONITOR_CONTROL_SOCKET_H
#define FB_MONITOR_CONTROL_SOCKET_H
#include <poll.h>

#include "monitor/snapshot_file.h"

#define FB_CONTROL_REQUEST_BYTES 1024
#define FB_CONTROL_REPLY_BYTES 4096
#define FB_CONTROL_CLIENTS 4 /* at once; others wait */
#define FB_CONTROL_FDS (1 + FB_CONTROL_CLIENTS)

struct fb_control;

/* Change one setting, as forebay_set. With `result` NULL only check whether it could be. */
typedef int (*fb_control_set_fn)(void *data, const char *key, const char *value,
                                 forebay_set_result *result, forebay_error *error);

int fb_control_open(struct fb_control **out, fb_control_set_fn set, void *data,
                    forebay_error *error);
void fb_control_close(struct fb_control *control);
/* "@forebay-..."; for the page. */
const char *fb_control_name(const struct fb_control *control);
/* What to wait for, FB_CONTROL_FDS entries; those not in use have fd -1. */
void fb_control_poll(const struct fb_control *control, struct pollfd fds[FB_CONTROL_FDS]);
/* Accept, read and answer whatever can be done at once. */
void fb_control_serve(struct fb_control *control);

/* The answer to one request of `length` bytes, without its newline: what serve() uses. All pairs
 * are checked before the first is set. Returns the reply's length; it ends with a newline. */
size_t fb_control_answer(const char *request, size_t length, fb_control_set_fn set, void *data,
                         char reply[FB_CONTROL_REPLY_BYTES]);

/* The client: send a request (no newline) to the loader of this page and read its reply. */
int fb_control_ask(const struct fb_snapshot *page, const char *request,
                   char reply[FB_CONTROL_REPLY_BYTES], forebay_error *error);
#endif

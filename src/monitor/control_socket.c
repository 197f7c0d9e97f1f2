#include "monitor/control_socket.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "config/config.h"

#define CLIENT_NS ((uint64_t)1000000000) /* a client that takes longer to ask is dropped */
#define ASK_SECONDS 10
#define PAIRS_MAX 16

struct client {
    int fd; /* -1: free */
    uint64_t deadline_ns;
    size_t length;
    char request[FB_CONTROL_REQUEST_BYTES];
};

struct fb_control {
    int fd;
    char name[64];
    fb_control_set_fn set;
    void *data;
    struct client clients[FB_CONTROL_CLIENTS];
    char reply[FB_CONTROL_REPLY_BYTES];
};

/* ---- One request ---- */

struct pair {
    const char *key, *value;
};

static size_t reply_put(json_t *json, char reply[FB_CONTROL_REPLY_BYTES])
{
    size_t length = json ? json_dumpb(json, reply, FB_CONTROL_REPLY_BYTES - 2, JSON_COMPACT) : 0;

    json_decref(json);
    if (!length || length > FB_CONTROL_REPLY_BYTES - 2)
        length = (size_t)snprintf(reply, FB_CONTROL_REPLY_BYTES, "{\"error\":{\"status\":"
                                  "\"NO_MEMORY\",\"message\":\"no memory for an answer\","
                                  "\"place\":\"\"}}");
    reply[length++] = '\n';
    reply[length] = '\0';
    return length;
}

static size_t reply_error(const forebay_error *error, char reply[FB_CONTROL_REPLY_BYTES])
{
    return reply_put(json_pack("{s:{s:s, s:s%, s:s%}}", "error", "status",
                               forebay_status_name(error->status), "message", error->message,
                               strlen(error->message), "place", error->place,
                               strlen(error->place)), reply);
}

/* "set a=b c=d", cut in place. */
static int parse(char *text, struct pair pairs[PAIRS_MAX], unsigned *count, forebay_error *error)
{
    char *save, *word = strtok_r(text, " ", &save);

    *count = 0;
    if (!word || strcmp(word, "set") != 0)
        return fb_fail(error, FOREBAY_BAD_USE, "expected 'set key=value ...'");
    while ((word = strtok_r(NULL, " ", &save))) {
        char *equals = strchr(word, '=');

        if (!equals || equals == word)
            return fb_fail(error, FOREBAY_BAD_USE, "'%.64s': expected key=value", word);
        if (*count == PAIRS_MAX)
            return fb_fail(error, FOREBAY_BAD_USE, "more than %d settings at once", PAIRS_MAX);
        if (!equals[1])
            return fb_fail(error, FOREBAY_BAD_USE, "'%.64s': the value is missing", word);
        *equals = '\0';
        pairs[(*count)++] = (struct pair){ word, equals + 1 };
    }
    return *count ? FOREBAY_OK : fb_fail(error, FOREBAY_BAD_USE, "nothing to set is named");
}

static int check_all(const struct pair *pairs, unsigned count, fb_control_set_fn set, void *data,
                     forebay_error *error)
{
    int status = FOREBAY_OK;

    for (unsigned i = 0; i < count && !status; i++)
        status = set(data, pairs[i].key, pairs[i].value, NULL, error);
    return status;
}

static size_t apply_all(const struct pair *pairs, unsigned count, fb_control_set_fn set,
                        void *data, char reply[FB_CONTROL_REPLY_BYTES])
{
    json_t *results = json_array();
    forebay_set_result result = { .old_value = "" };
    forebay_error error;

    for (unsigned i = 0; i < count; i++) {
        if (set(data, pairs[i].key, pairs[i].value, &result, &error)) {
            json_decref(results);
            return reply_error(&error, reply);
        }
        json_array_append_new(results, json_pack("{s:s, s:s, s:s, s:s}", "key", pairs[i].key,
                                                 "old", result.old_value, "new", result.new_value,
                                                 "also", result.also));
    }
    return reply_put(json_pack("{s:o, s:I, s:I}", "results", results, "held_batches",
                               (json_int_t)result.held_batches, "held_bytes",
                               (json_int_t)result.held_bytes), reply);
}

size_t fb_control_answer(const char *request, size_t length, fb_control_set_fn set, void *data,
                         char reply[FB_CONTROL_REPLY_BYTES])
{
    char text[FB_CONTROL_REQUEST_BYTES];
    struct pair pairs[PAIRS_MAX];
    forebay_error error = { .status = FOREBAY_OK };
    unsigned count = 0;

    if (length >= sizeof(text))
        fb_fail(&error, FOREBAY_BAD_USE, "a request has at most %zu bytes", sizeof(text) - 1);
    for (size_t i = 0; i < length && !error.status; i++)
        if ((unsigned char)request[i] < ' ' || (unsigned char)request[i] > '~')
            fb_fail(&error, FOREBAY_BAD_USE, "a request is one line of plain letters");
    if (!error.status) {
        memcpy(text, request, length);
        text[length] = '\0';
        if (!parse(text, pairs, &count, &error))
            check_all(pairs, count, set, data, &error);
    }
    return error.status ? reply_error(&error, reply)
                        : apply_all(pairs, count, set, data, reply);
}

/* ---- The server ---- */

static bool address_make(struct sockaddr_un *address, socklen_t *size, const char *name)
{
    size_t length = strlen(name);

    if (name[0] != '@' || length >= sizeof(address->sun_path))
        return false;
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(address->sun_path, name, length);
    address->sun_path[0] = '\0';
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return true;
}

/* Nobody can take a name beforehand that nobody can guess. */
static void name_make(char name[64])
{
    uint64_t token = fb_now_ns();

    (void)!getrandom(&token, sizeof(token), GRND_NONBLOCK);
    snprintf(name, 64, "@forebay-%u-%d-%016" PRIx64, (unsigned)geteuid(), (int)getpid(), token);
}

int fb_control_open(struct fb_control **out, fb_control_set_fn set, void *data,
                    forebay_error *error)
{
    struct fb_control *control = calloc(1, sizeof(*control));
    struct sockaddr_un address;
    socklen_t size;

    if (!control)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the control socket");
    control->set = set;
    control->data = data;
    for (unsigned i = 0; i < FB_CONTROL_CLIENTS; i++)
        control->clients[i].fd = -1;
    name_make(control->name);
    control->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->fd < 0 || !address_make(&address, &size, control->name) ||
        bind(control->fd, (struct sockaddr *)&address, size) || listen(control->fd, 16)) {
        fb_fail_errno(error, FOREBAY_IO, "cannot open a control socket");
        fb_control_close(control);
        return FOREBAY_IO;
    }
    *out = control;
    return FOREBAY_OK;
}

static void client_drop(struct client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    client->length = 0;
}

void fb_control_close(struct fb_control *control)
{
    if (!control)
        return;
    for (unsigned i = 0; i < FB_CONTROL_CLIENTS; i++)
        client_drop(&control->clients[i]);
    if (control->fd >= 0)
        close(control->fd);
    free(control);
}

const char *fb_control_name(const struct fb_control *control)
{
    return control->name;
}

void fb_control_poll(const struct fb_control *control, struct pollfd fds[FB_CONTROL_FDS])
{
    bool full = true;

    for (unsigned i = 0; i < FB_CONTROL_CLIENTS; i++) {
        fds[1 + i] = (struct pollfd){ .fd = control->clients[i].fd, .events = POLLIN };
        full = full && control->clients[i].fd >= 0;
    }
    fds[0] = (struct pollfd){ .fd = full ? -1 : control->fd, .events = POLLIN };
}

static bool is_same_user(int fd, struct ucred *peer)
{
    socklen_t size = sizeof(*peer);

    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &size) && peer->uid == geteuid();
}

static void client_accept(struct fb_control *control, struct client *client)
{
    static const char refusal[] = "{\"error\":{\"status\":\"BAD_USE\",\"message\":\"this loader "
                                  "belongs to another user\",\"place\":\"\"}}\n";
    struct ucred peer;

    client->fd = accept4(control->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client->fd < 0)
        return;
    client->deadline_ns = fb_now_ns() + CLIENT_NS;
    if (is_same_user(client->fd, &peer))
        return;
    (void)!send(client->fd, refusal, sizeof(refusal) - 1, MSG_NOSIGNAL);
    client_drop(client);
}

static void client_serve(struct fb_control *control, struct client *client)
{
    ssize_t got = recv(client->fd, client->request + client->length,
                       sizeof(client->request) - client->length, 0);
    size_t length;
    char *end;

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (fb_now_ns() > client->deadline_ns)
            client_drop(client);
        return;
    }
    client->length += got > 0 ? (size_t)got : 0;
    end = memchr(client->request, '\n', client->length);
    if (!end && got > 0 && client->length < sizeof(client->request))
        return;
    if (end || client->length == sizeof(client->request)) {
        length = fb_control_answer(client->request,
                                   end ? (size_t)(end - client->request) : client->length,
                                   control->set, control->data, control->reply);
        /* It fits in any socket's buffer: whoever does not take it has lost it. */
        (void)!send(client->fd, control->reply, length, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    client_drop(client);
}

void fb_control_serve(struct fb_control *control)
{
    bool empty = false; /* nobody more wants in */

    for (unsigned i = 0; i < FB_CONTROL_CLIENTS; i++) {
        struct client *client = &control->clients[i];

        if (client->fd < 0 && !empty) {
            client_accept(control, client);
            empty = client->fd < 0;
        }
        if (client->fd >= 0)
            client_serve(control, client);
    }
}

/* ---- The client ---- */

static int connect_to(const struct fb_snapshot *page, forebay_error *error)
{
    struct timeval patience = { .tv_sec = ASK_SECONDS };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address;
    struct ucred peer;
    socklen_t size;

    if (fd >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    }
    if (fd < 0 || !address_make(&address, &size, page->socket) ||
        connect(fd, (struct sockaddr *)&address, size)) {
        fb_fail_errno(error, FOREBAY_IO, "cannot reach the loader of process %" PRIu64, page->pid);
    } else if (!is_same_user(fd, &peer) ||
               (page->pid_space == fb_host_pid_space() && (uint64_t)peer.pid != page->pid)) {
        fb_fail(error, FOREBAY_BAD_USE, "what answers there is not the loader of process %" PRIu64,
                page->pid);
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

int fb_control_ask(const struct fb_snapshot *page, const char *request,
                   char reply[FB_CONTROL_REPLY_BYTES], forebay_error *error)
{
    size_t length = strlen(request), got = 0;
    ssize_t part = 1;
    int fd;

    if (length + 1 >= FB_CONTROL_REQUEST_BYTES)
        return fb_fail(error, FOREBAY_BAD_USE, "that is too long to be set at once");
    fd = connect_to(page, error);
    if (fd < 0)
        return error ? (int)error->status : FOREBAY_IO;
    if (send(fd, request, length, MSG_NOSIGNAL | MSG_MORE) == (ssize_t)length &&
        send(fd, "\n", 1, MSG_NOSIGNAL) == 1)
        while (part > 0 && got < FB_CONTROL_REPLY_BYTES - 1) {
            part = recv(fd, reply + got, FB_CONTROL_REPLY_BYTES - 1 - got, 0);
            got += part > 0 ? (size_t)part : 0;
        }
    close(fd);
    reply[got] = '\0';
    if (!strchr(reply, '\n'))
        return fb_fail(error, FOREBAY_TIMEOUT, "the loader of process %" PRIu64
                       " did not answer; is it stopped?", page->pid);
    return FOREBAY_OK;
}

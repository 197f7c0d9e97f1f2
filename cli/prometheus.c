#include "prometheus.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "loaders.h"

#ifdef HAVE_MICROHTTPD
#include <microhttpd.h>
#include <sys/socket.h>

#define CLIENTS 16
#define DEADLINE_NS ((uint64_t)5 * 1000000000)
#endif

/* ---- The text ---- */

static void gauge(FILE *to, const char *name, const char *labels, double value)
{
    if (isfinite(value))
        fprintf(to, "forebay_%s%s %.17g\n", name, labels, value);
}

static double known(uint64_t value)
{
    return value == FB_UNKNOWN ? (double)NAN : (double)value;
}

static void host_write(FILE *to, const struct fb_sample *sample)
{
    gauge(to, "host_memory_total_bytes", "", known(sample->memory.total_bytes));
    gauge(to, "host_memory_available_bytes", "", known(sample->memory.available_bytes));
    gauge(to, "host_swap_used_bytes", "", known(sample->memory.swap_used_bytes));
    gauge(to, "host_memory_stalled_percent", "", sample->pressure.memory_some);
    gauge(to, "cgroup_memory_limit_bytes", "", known(sample->memory.cgroup_limit_bytes));
    gauge(to, "cgroup_memory_used_bytes", "", known(sample->memory.cgroup_used_bytes));
    gauge(to, "host_cpu_percent", "", sample->cpu_all);
    gauge(to, "host_io_wait_percent", "", sample->io_wait);
    gauge(to, "host_disk_read_bytes_per_second", "", sample->disk_read);
    gauge(to, "host_disk_write_bytes_per_second", "", sample->disk_write);
    if (sample->processes) {
        gauge(to, "tree_processes", "", sample->processes);
        gauge(to, "tree_resident_bytes", "", known(sample->resident));
    }
    for (unsigned i = 0; i < sample->gpu_count; i++) {
        char labels[32];

        snprintf(labels, sizeof(labels), "{gpu=\"%u\"}", i);
        gauge(to, "gpu_utilization_percent", labels, sample->gpus[i].utilisation);
        gauge(to, "gpu_memory_used_bytes", labels, sample->gpus[i].memory_used);
        gauge(to, "gpu_memory_total_bytes", labels, sample->gpus[i].memory_total);
        gauge(to, "gpu_power_watts", labels, sample->gpus[i].power);
        gauge(to, "gpu_temperature_celsius", labels, sample->gpus[i].temperature);
    }
}

static void loader_write(FILE *to, const struct fb_snapshot *page)
{
    char labels[160], name[64];
    size_t length = 0;

    for (const char *at = page->name; *at && length < sizeof(name) - 1; at++)
        name[length++] = *at == '"' || *at == '\\' ? '_' : *at;
    name[length] = '\0';
    snprintf(labels, sizeof(labels), "{pid=\"%" PRIu64 "\",name=\"%s\"}", page->pid, name);
    for (unsigned i = 0; i < fb_figure_count; i++)
        if (fb_figures[i].metric[0])
            gauge(to, fb_figures[i].metric, labels, fb_figure_value(&fb_figures[i], page));
}

char *prometheus_text(const struct fb_sample *sample)
{
    struct loaders loaders;
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);

    if (!to)
        return NULL;
    host_write(to, sample);
    if (loaders_find(&loaders, NULL, NULL) == FOREBAY_OK) {
        for (unsigned i = 0; i < loaders.count; i++)
            loader_write(to, &loaders.pages[i]);
        loaders_release(&loaders);
    }
    fclose(to);
    return text;
}

/* ---- The server ---- */

#ifdef HAVE_MICROHTTPD

struct prometheus {
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock;

    /* Guarded by lock: */
    char *text;
    struct {
        int fd; /* 0: free */
        uint64_t since_ns;
    } clients[CLIENTS];
};

/* A client that sends a byte a second is never silent: each connection has a deadline of its own. */
static void client_note(void *data, struct MHD_Connection *connection, void **context,
                        enum MHD_ConnectionNotificationCode code)
{
    const union MHD_ConnectionInfo *about =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    bool comes = code == MHD_CONNECTION_NOTIFY_STARTED;
    struct prometheus *prometheus = data;

    (void)context;
    pthread_mutex_lock(&prometheus->lock);
    for (unsigned i = 0; about && i < CLIENTS; i++)
        if (prometheus->clients[i].fd == (comes ? 0 : (int)about->connect_fd)) {
            prometheus->clients[i].fd = comes ? (int)about->connect_fd : 0;
            prometheus->clients[i].since_ns = fb_now_ns();
            break;
        }
    pthread_mutex_unlock(&prometheus->lock);
}

void prometheus_tick(struct prometheus *prometheus)
{
    uint64_t now = fb_now_ns();

    if (!prometheus)
        return;
    pthread_mutex_lock(&prometheus->lock);
    for (unsigned i = 0; i < CLIENTS; i++)
        if (prometheus->clients[i].fd && now - prometheus->clients[i].since_ns > DEADLINE_NS)
            (void)shutdown(prometheus->clients[i].fd, SHUT_RDWR);
    pthread_mutex_unlock(&prometheus->lock);
}

static enum MHD_Result answer(void *data, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **state)
{
    struct prometheus *prometheus = data;
    bool good = !strcmp(url, "/metrics") || !strcmp(url, "/");
    struct MHD_Response *response;
    enum MHD_Result result;
    const char *text;

    (void)version;
    (void)upload;
    (void)upload_size;
    (void)state;
    if (strcmp(method, "GET") != 0)
        return MHD_NO;
    pthread_mutex_lock(&prometheus->lock);
    text = !good ? "see /metrics\n" : prometheus->text ? prometheus->text : "";
    response = MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                               MHD_RESPMEM_MUST_COPY);
    pthread_mutex_unlock(&prometheus->lock);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, "Connection", "close"); /* its deadline is of one request */
    MHD_add_response_header(response, "Content-Type", "text/plain; version=0.0.4");
    result = MHD_queue_response(connection, good ? MHD_HTTP_OK : MHD_HTTP_NOT_FOUND, response);
    MHD_destroy_response(response);
    return result;
}

static bool address_parse(const char *where, struct sockaddr_in *address)
{
    const char *colon = strrchr(where, ':');
    char host[64] = "127.0.0.1", *end;
    unsigned long port = strtoul(colon ? colon + 1 : where, &end, 10);

    if (colon && colon > where)
        snprintf(host, sizeof(host), "%.*s", (int)(colon - where), where);
    *address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    return !*end && port > 0 && port < 65536 &&
           inet_pton(AF_INET, host, &address->sin_addr) == 1;
}

int prometheus_start(struct prometheus **out, const char *where, forebay_error *error)
{
    struct prometheus *prometheus;
    struct sockaddr_in address;

    if (!address_parse(where, &address))
        return fb_fail(error, FOREBAY_BAD_USE, "--listen '%s': expected PORT or ADDRESS:PORT",
                       where);
    prometheus = calloc(1, sizeof(*prometheus));
    if (!prometheus)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the HTTP server");
    pthread_mutex_init(&prometheus->lock, NULL);
    prometheus->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD, ntohs(address.sin_port), NULL, NULL, answer, prometheus,
        MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CLIENTS, MHD_OPTION_NOTIFY_CONNECTION, client_note, prometheus,
        MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
    if (!prometheus->daemon) {
        free(prometheus);
        return fb_fail_errno(error, FOREBAY_IO, "cannot listen at '%s'", where);
    }
    *out = prometheus;
    return FOREBAY_OK;
}

void prometheus_stop(struct prometheus *prometheus)
{
    if (!prometheus)
        return;
    MHD_stop_daemon(prometheus->daemon);
    pthread_mutex_destroy(&prometheus->lock);
    free(prometheus->text);
    free(prometheus);
}

void prometheus_tell(struct prometheus *prometheus, const struct fb_sample *sample)
{
    char *text = prometheus ? prometheus_text(sample) : NULL, *before;

    if (!text)
        return;
    pthread_mutex_lock(&prometheus->lock);
    before = prometheus->text;
    prometheus->text = text;
    pthread_mutex_unlock(&prometheus->lock);
    free(before);
}

#else

int prometheus_start(struct prometheus **out, const char *where, forebay_error *error)
{
    (void)out;
    (void)where;
    return fb_fail(error, FOREBAY_NOT_BUILT, "--listen: this forebay was built without "
                   "libmicrohttpd");
}

void prometheus_stop(struct prometheus *prometheus)
{
    (void)prometheus;
}

void prometheus_tell(struct prometheus *prometheus, const struct fb_sample *sample)
{
    (void)prometheus;
    (void)sample;
}

void prometheus_tick(struct prometheus *prometheus)
{
    (void)prometheus;
}

#endif

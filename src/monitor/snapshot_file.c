#include "monitor/snapshot_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/mix.h"

#define MAGIC 0x3165676170626600u /* the bytes 0, "fbpage1" */
#define PAGES_LISTED 4096         /* more in one folder are passed over */
#define ELSEWHERE_NS ((uint64_t)10 * 1000000000) /* silent for so long: dead, if it cannot be seen */
#define REGISTERED 64

struct copy {
    _Atomic uint64_t number; /* 0 while it is being written */
    uint64_t checksum;
    struct fb_snapshot page;
};

struct file {
    uint64_t magic, version, page_bytes, spare;
    struct copy copies[2];
};
_Static_assert(sizeof(struct file) <= FB_SNAPSHOT_FILE_BYTES, "the file must hold two copies");
_Static_assert(sizeof(struct fb_snapshot) % 8 == 0, "summed in words");

struct fb_snapshot_file {
    struct file *file;
    pid_t pid;
    uint64_t number;
    char path[FB_HOST_PATH_BYTES + 160];
};

/* The version, and which figure is where: a build with another table must not read this file. */
static uint64_t version(void)
{
    uint64_t sum = FB_SNAPSHOT_FILE_VERSION;

    for (unsigned i = 0; i < fb_figure_count; i++) {
        sum = fb_mix2(sum, fb_figures[i].offset);
        for (const char *at = fb_figures[i].key; *at; at++)
            sum = fb_mix2(sum, (unsigned char)*at);
    }
    return sum;
}

static uint64_t checksum(const struct fb_snapshot *page)
{
    const uint64_t factor = 0x9e3779b97f4a7c15u;
    uint64_t a = 1, b = 2, c = 3, d = 4, words[4] = { 0, 0, 0, 0 };
    const char *bytes = (const char *)page;
    size_t at = 0;

    /* Four chains, so that one need not wait for the other. */
    for (; at + sizeof(words) <= sizeof(*page); at += sizeof(words)) {
        memcpy(words, bytes + at, sizeof(words));
        a = (a ^ words[0]) * factor;
        b = (b ^ words[1]) * factor;
        c = (c ^ words[2]) * factor;
        d = (d ^ words[3]) * factor;
    }
    memcpy(words, bytes + at, sizeof(*page) - at);
    return fb_mix2(fb_mix2(a ^ words[0], b ^ words[1]), fb_mix2(c ^ words[2], d));
}

/* ---- Pages of programs that end without closing ---- */

/* A program that returns from main, or a Python that exits, was not killed: its pages go, too. Only
 * then is this list looked at. */
static _Atomic(struct fb_snapshot_file *) registered[REGISTERED];

static void list_change(struct fb_snapshot_file *from, struct fb_snapshot_file *to)
{
    for (unsigned i = 0; i < REGISTERED; i++) {
        struct fb_snapshot_file *expected = from;

        if (atomic_compare_exchange_strong(&registered[i], &expected, to))
            return;
    }
}

__attribute__((destructor)) static void remove_at_exit(void)
{
    for (unsigned i = 0; i < REGISTERED; i++) {
        struct fb_snapshot_file *writer = atomic_load(&registered[i]);

        if (writer && writer->pid == getpid())
            (void)unlink(writer->path);
    }
}

/* ---- Writing ---- */

static void file_name(char *text, size_t size, const struct fb_snapshot *page, unsigned twin)
{
    char name[64];
    size_t length = 0;

    for (const char *at = page->name; *at && length < 40; at++) {
        bool plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                     (*at >= '0' && *at <= '9') || *at == '_';

        name[length++] = plain ? *at : '_';
    }
    name[length] = '\0';
    if (twin)
        snprintf(text, size, "/%" PRIu64 "-%" PRIu64 "-%s.%u.page", page->pid, page->start, name,
                 twin);
    else
        snprintf(text, size, "/%" PRIu64 "-%" PRIu64 "-%s.page", page->pid, page->start, name);
}

/* The first name that is free: a process may have several loaders of one name. */
static int make_file(struct fb_snapshot_file *writer, const struct fb_snapshot *page,
                     forebay_error *error)
{
    char folder[FB_HOST_PATH_BYTES], name[128];
    int status = fb_host_run_folder(folder, error), fd = -1;

    if (status)
        return -1;
    for (unsigned twin = 0; fd < 0 && twin < 1000; twin++) {
        file_name(name, sizeof(name), page, twin);
        snprintf(writer->path, sizeof(writer->path), "%s%s", folder, name);
        fd = open(writer->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        fb_fail_errno(error, FOREBAY_IO, "cannot make '%s'", writer->path);
    return fd;
}

static int map_file(struct fb_snapshot_file *writer, int fd, forebay_error *error)
{
    void *area;

    /* Allocated, not only sized: a write to a hole of a full file system is a SIGBUS. glibc writes
     * zeros where the file system cannot allocate, so an error means that there is no room. */
    errno = posix_fallocate(fd, 0, (off_t)FB_SNAPSHOT_FILE_BYTES);
    if (errno)
        return fb_fail_errno(error, FOREBAY_IO, "cannot allocate %d KiB for '%s'",
                             (int)(FB_SNAPSHOT_FILE_BYTES / 1024), writer->path);
    area = mmap(NULL, FB_SNAPSHOT_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (area == MAP_FAILED)
        return fb_fail_errno(error, FOREBAY_NO_MEMORY, "cannot map '%s'", writer->path);
    (void)madvise(area, FB_SNAPSHOT_FILE_BYTES, MADV_DONTFORK);
    writer->file = area;
    *writer->file = (struct file){ .magic = MAGIC,
                                   .version = version(),
                                   .page_bytes = sizeof(struct fb_snapshot) };
    return FOREBAY_OK;
}

int fb_snapshot_file_open(struct fb_snapshot_file **out, const struct fb_snapshot *page, forebay_error *error)
{
    struct fb_snapshot_file *writer = calloc(1, sizeof(*writer));
    forebay_error local;
    int fd, status;

    error = error ? error : &local;
    if (!writer)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for the page that top reads");
    writer->pid = getpid();
    fd = make_file(writer, page, error);
    status = fd < 0 ? (int)error->status : map_file(writer, fd, error);
    if (fd >= 0)
        close(fd);
    if (status) {
        if (fd >= 0)
            (void)unlink(writer->path);
        free(writer);
        return status;
    }
    list_change(NULL, writer);
    fb_snapshot_file_write(writer, page);
    *out = writer;
    return FOREBAY_OK;
}

void fb_snapshot_file_write(struct fb_snapshot_file *writer, const struct fb_snapshot *page)
{
    struct copy *copy = &writer->file->copies[++writer->number % 2];

    atomic_store_explicit(&copy->number, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    memcpy(&copy->page, page, sizeof(*page));
    copy->checksum = checksum(page) ^ writer->number;
    atomic_store_explicit(&copy->number, writer->number, memory_order_release);
}

void fb_snapshot_file_close(struct fb_snapshot_file *writer)
{
    if (!writer || writer->pid != getpid())
        return;
    list_change(writer, NULL);
    (void)unlink(writer->path);
    munmap(writer->file, FB_SNAPSHOT_FILE_BYTES);
    free(writer);
}

void fb_snapshot_identify(struct fb_snapshot *page, const char *name)
{
    char group[FB_HOST_PATH_BYTES];

    page->pid = (uint64_t)getpid();
    page->start = fb_host_process_start(getpid());
    page->pid_space = fb_host_pid_space();
    page->uid = (uint64_t)geteuid();
    fb_host_boot(page->boot);
    snprintf(page->name, sizeof(page->name), "%s", name);
    fb_host_group(group, "");
    if (strlen(group) < sizeof(page->group))
        snprintf(page->group, sizeof(page->group), "%.*s", (int)sizeof(page->group) - 1, group);
}

/* ---- Reading ---- */

/* It ends, and holds nothing that would upset a terminal. */
static void text_tame(char *text, size_t size)
{
    text[size - 1] = '\0';
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
}

static void page_tame(struct fb_snapshot *page)
{
    text_tame(page->boot, sizeof(page->boot));
    text_tame(page->name, sizeof(page->name));
    text_tame(page->socket, sizeof(page->socket));
    text_tame(page->group, sizeof(page->group));
    text_tame(page->verdict, sizeof(page->verdict));
    text_tame(page->policy, sizeof(page->policy));
    for (unsigned i = 0; i < FB_SNAPSHOT_DECISIONS; i++)
        text_tame(page->decisions[i].text, sizeof(page->decisions[i].text));
    if (page->worker_count > FB_SNAPSHOT_WORKERS)
        page->worker_count = FB_SNAPSHOT_WORKERS;
    for (unsigned i = 0; i < FB_SNAPSHOT_WORKERS; i++)
        if (page->doing[i] > FB_WORKER_DECODES)
            page->doing[i] = FB_WORKER_WAITS;
}

bool fb_snapshot_file_parse(struct fb_snapshot *page, const void *bytes, size_t size)
{
    const char *base = bytes;
    uint64_t head[3], best = 0;

    if (size < sizeof(struct file))
        return false;
    memcpy(head, base, sizeof(head));
    if (head[0] != MAGIC || head[1] != version() || head[2] != sizeof(struct fb_snapshot))
        return false;
    for (unsigned i = 0; i < 2; i++) {
        const char *at = base + offsetof(struct file, copies) + i * sizeof(struct copy);
        uint64_t number, sum;
        struct fb_snapshot candidate;

        memcpy(&number, at + offsetof(struct copy, number), 8);
        memcpy(&sum, at + offsetof(struct copy, checksum), 8);
        memcpy(&candidate, at + offsetof(struct copy, page), sizeof(candidate));
        if (number <= best || (checksum(&candidate) ^ number) != sum)
            continue;
        best = number;
        *page = candidate;
    }
    if (best)
        page_tame(page);
    return best > 0;
}

void fb_snapshot_file_format(char bytes[FB_SNAPSHOT_FILE_BYTES], const struct fb_snapshot *page)
{
    const uint64_t head[3] = { MAGIC, version(), sizeof(struct fb_snapshot) };
    const uint64_t number = 1, sum = checksum(page) ^ number;
    char *at = bytes + offsetof(struct file, copies);

    memcpy(bytes, head, sizeof(head));
    memcpy(at + offsetof(struct copy, number), &number, 8);
    memcpy(at + offsetof(struct copy, checksum), &sum, 8);
    memcpy(at + offsetof(struct copy, page), page, sizeof(*page));
}

static int open_checked(const char *path, forebay_error *error)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat about;

    if (fd < 0) {
        fb_fail_errno(error, FOREBAY_MISSING, "cannot open '%s'", path);
        return -1;
    }
    if (fstat(fd, &about) || !S_ISREG(about.st_mode) || about.st_uid != geteuid()) {
        close(fd);
        fb_fail(error, FOREBAY_MISSING, "'%s' is no file of this user", path);
        return -1;
    }
    return fd;
}

int fb_snapshot_file_read(struct fb_snapshot *page, const char *path, forebay_error *error)
{
    int fd = open_checked(path, error);
    char *bytes;
    bool good = false;

    if (fd < 0)
        return FOREBAY_MISSING;
    bytes = malloc(FB_SNAPSHOT_FILE_BYTES);
    /* Both copies are torn only if the writer was twice as fast as this read: once more, then. */
    for (unsigned tries = 0; bytes && !good && tries < 3; tries++) {
        ssize_t got = pread(fd, bytes, FB_SNAPSHOT_FILE_BYTES, 0);

        good = got > 0 && fb_snapshot_file_parse(page, bytes, (size_t)got);
    }
    free(bytes);
    close(fd);
    return good ? FOREBAY_OK
                : fb_fail(error, FOREBAY_BAD_DATA, "'%s' is no page of this version of forebay",
                          path);
}

void fb_snapshot_file_settle(const char *path, const struct fb_snapshot *page)
{
    struct copy copy = { .number = INT64_MAX, .page = *page };
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat about;

    copy.checksum = checksum(page) ^ INT64_MAX;
    if (fd < 0)
        return;
    /* Cut short, the other copy still tells all but the verdict. */
    if (!fstat(fd, &about) && S_ISREG(about.st_mode) && about.st_uid == geteuid())
        (void)!pwrite(fd, &copy, sizeof(copy), offsetof(struct file, copies));
    close(fd);
}

bool fb_snapshot_is_alive(const struct fb_snapshot *page)
{
    struct timespec now;
    char boot[40];

    fb_host_boot(boot);
    if (strcmp(boot, page->boot) != 0)
        return false;
    if (page->pid_space == fb_host_pid_space())
        return page->pid <= INT32_MAX &&
               fb_host_process_start((pid_t)page->pid) == page->start && page->start;
    /* Of a container whose processes we cannot see: it writes ten times a second. */
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u < page->time_ns + ELSEWHERE_NS;
}

static int is_page(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);

    return length > 5 && !strcmp(entry->d_name + length - 5, ".page");
}

int fb_snapshot_file_list(fb_snapshot_file_fn fn, void *data, forebay_error *error)
{
    char folder[FB_HOST_PATH_BYTES], path[FB_HOST_PATH_BYTES + 300];
    int status = fb_host_run_folder(folder, error), count;
    struct fb_snapshot *page = status ? NULL : malloc(sizeof(*page));
    struct dirent **names = NULL;
    bool go_on = page != NULL;

    if (status)
        return status;
    count = page ? scandir(folder, &names, is_page, versionsort) : 0;
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
        if (go_on && i < PAGES_LISTED && fb_snapshot_file_read(page, path, NULL) == FOREBAY_OK)
            go_on = fn(data, page, path);
        free(names[i]);
    }
    free(names);
    free(page);
    return FOREBAY_OK;
}

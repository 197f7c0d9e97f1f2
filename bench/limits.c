/*
 * limits.c -- what the hardware allows, in as few lines as possible: no loader can be faster.
 *
 *     limits memcpy THREADS              256 MiB blocks, out of every cache
 *     limits read THREADS DIR SUFFIX [BYTES]   whole files of the page cache into a reused buffer of one
 *                                        file, which stays in the processor's cache if it is small; or into
 *                                        BYTES a thread, one file behind the other, as a batch needs them
 *     limits fresh THREADS DIR SUFFIX    the same into memory that is new each time
 *     limits gather THREADS ROWS BYTES   random rows of a large array, non-temporal stores
 *
 * prints one JSON object. Each thread has its own buffer and its own share of the files.
 */
#include <dirent.h>
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BLOCK ((size_t)256 << 20)
#define SECONDS 1.5
#define THREADS_MAX 64

struct worker {
    pthread_t thread;
    unsigned number;
    double bytes, items;
};

static unsigned threads;
static char **files;
static size_t file_count, largest, ring = 1; /* files that the buffer holds */
static int fresh;
static char *array;
static size_t row_bytes, row_count;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static char *map(size_t bytes, int touch)
{
    char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (area == MAP_FAILED)
        die("mmap");
    if (touch) {
        madvise(area, bytes, MADV_HUGEPAGE);
        memset(area, 1, bytes);
    }
    return area;
}

static void *copy(void *argument)
{
    struct worker *worker = argument;
    char *from = map(BLOCK, 1), *to = map(BLOCK, 1);

    for (double begin = now(); now() - begin < SECONDS; worker->items++) {
        memcpy(to, from, BLOCK);
        worker->bytes += (double)BLOCK;
    }
    return NULL;
}

static size_t read_file(const char *path, char *to, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t done = 0;
    ssize_t got = 1;

    while (fd >= 0 && got > 0 && done < room) {
        got = pread(fd, to + done, room - done, (off_t)done);
        done += got > 0 ? (size_t)got : 0;
    }
    if (fd < 0 || got < 0)
        die(path);
    close(fd);
    return done;
}

static void *read_files(void *argument)
{
    struct worker *worker = argument;
    char *buffer = fresh ? NULL : map(largest * ring, 1);
    size_t at = worker->number, turn = 0;

    for (double begin = now(); now() - begin < SECONDS; worker->items++, at += threads) {
        char *to = fresh ? map(largest, 0) : buffer + turn++ % ring * largest;

        worker->bytes += (double)read_file(files[at % file_count], to, largest);
        if (fresh)
            munmap(to, largest);
    }
    return NULL;
}

static void stream_row(char *to, const char *from)
{
    for (size_t i = 0; i + 16 <= row_bytes; i += 16)
        _mm_stream_si128((__m128i *)(void *)(to + i),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + i)));
}

static void *gather(void *argument)
{
    struct worker *worker = argument;
    size_t rows = 1024;
    char *to = map(rows * row_bytes, 1);
    uint64_t state = 88172645463325252u + worker->number;

    for (double begin = now(); now() - begin < SECONDS; worker->items += (double)rows) {
        for (size_t r = 0; r < rows; r++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            stream_row(to + r * row_bytes, array + state % row_count * row_bytes);
        }
        worker->bytes += (double)(rows * row_bytes);
    }
    return NULL;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_file(const char *folder, const char *name)
{
    char path[4096];
    struct stat info;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (stat(path, &info))
        die(path);
    files = realloc(files, (file_count + 1) * sizeof(*files));
    if (!files || !(files[file_count++] = strdup(path)))
        die("memory");
    largest = (size_t)info.st_size > largest ? (size_t)info.st_size : largest;
}

static void list_files(const char *folder, const char *suffix)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    if (!dir)
        die(folder);
    while ((entry = readdir(dir))) {
        size_t length = strlen(entry->d_name), tail = strlen(suffix);

        if (length >= tail && !strcmp(entry->d_name + length - tail, suffix))
            add_file(folder, entry->d_name);
    }
    closedir(dir);
    if (file_count == 0) {
        fprintf(stderr, "%s: no file *%s\n", folder, suffix);
        exit(1);
    }
    qsort(files, file_count, sizeof(*files), by_name);
}

static void run(void *(*work)(void *), const char *name)
{
    static struct worker workers[THREADS_MAX];
    double begin = now(), bytes = 0, items = 0;

    for (unsigned i = 0; i < threads; i++) {
        workers[i] = (struct worker){ .number = i };
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        bytes += workers[i].bytes;
        items += workers[i].items;
    }
    begin = now() - begin;
    printf("{\"test\": \"%s\", \"threads\": %u, \"bytes_per_s\": %.0f, \"items_per_s\": %.2f}\n",
           name, threads, bytes / begin, items / begin);
}

int main(int argc, char **argv)
{
    const char *test = argc > 2 ? argv[1] : "";

    threads = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    if (threads >= 1 && threads <= THREADS_MAX && !strcmp(test, "memcpy")) {
        run(copy, test);
        return 0;
    }
    if (threads < 1 || threads > THREADS_MAX || argc < 5) {
        fprintf(stderr, "use: limits memcpy|read|fresh|gather THREADS [DIR SUFFIX | ROWS BYTES]\n");
        return 2;
    }
    if (!strcmp(test, "gather")) {
        row_count = (size_t)atoll(argv[3]);
        row_bytes = (size_t)atoll(argv[4]);
        array = map(row_count * row_bytes, 1);
        run(gather, test);
        return 0;
    }
    fresh = !strcmp(test, "fresh");
    list_files(argv[3], argv[4]);
    if (argc > 5 && (size_t)atoll(argv[5]) > largest)
        ring = (size_t)atoll(argv[5]) / largest;
    run(read_files, test);
    return 0;
}

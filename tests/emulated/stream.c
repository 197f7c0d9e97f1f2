/* stream.c -- streams of the emulated driver: a thread each, operations in order. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inside.h"

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = { .tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u) };

    if (ns)
        while (nanosleep(&left, &left) != 0)
            continue;
}

/* Order counts, so that swapped bytes are noticed, too. */
static uint64_t sum_of(const char *bytes, size_t size)
{
    uint64_t sum = 0, word;

    for (; size >= sizeof(word); bytes += sizeof(word), size -= sizeof(word)) {
        memcpy(&word, bytes, sizeof(word));
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    for (size_t i = 0; i < size; i++)
        sum = sum * 31 + (unsigned char)bytes[i];
    return sum;
}

static void slow_read(const struct operation *operation)
{
    uint64_t before = sum_of(operation->from, operation->size);

    sleep_ns(operation->ns);
    if (sum_of(operation->from, operation->size) != before)
        fatal("device memory was written while a kernel read it");
    if (operation->sum)
        *operation->sum = before;
}

static void copy_in(const struct operation *operation)
{
    sleep_ns(operation->ns);
    if (sum_of(operation->host, operation->size) != operation->host_sum)
        fatal("host memory was written while a copy from it was under way");
    memcpy(operation->to, operation->host, operation->size);
}

/* Without the lock; only RECORD and WAIT take it. */
static void operation_run(struct operation *operation)
{
    switch (operation->kind) {
    case COPY_IN:
        copy_in(operation);
        break;
    case COPY_INSIDE:
        memmove(operation->to, operation->from, operation->size);
        break;
    case KERNEL:
        kernel_run(operation);
        break;
    case SLOW_READ:
        slow_read(operation);
        break;
    case RECORD:
    case WAIT:
        break;
    }
}

void event_drop_locked(CUevent event)
{
    if (--event->references > 0)
        return;
    driver.events--;
    free(event);
}

void wait_event_locked(CUevent event, uint64_t ticket)
{
    while (event->done < ticket)
        pthread_cond_wait(&driver.changed, &driver.lock);
}

static void *stream_main(void *argument)
{
    struct CUstream_st *stream = argument;
    struct operation *operation;

    pthread_mutex_lock(&driver.lock);
    for (;;) {
        while (!stream->first && !stream->closing)
            pthread_cond_wait(&stream->more, &driver.lock);
        operation = stream->first;
        if (!operation)
            break;
        if (operation->kind == WAIT)
            wait_event_locked(operation->event, operation->ticket);
        pthread_mutex_unlock(&driver.lock);
        operation_run(operation);
        pthread_mutex_lock(&driver.lock);
        if (operation->kind == RECORD) {
            operation->event->done = operation->ticket;
            operation->event->ms = now_ms();
        }
        if (operation->event)
            event_drop_locked(operation->event);
        stream->first = operation->next;
        if (!stream->first)
            stream->last = NULL;
        free(operation);
        pthread_cond_broadcast(&driver.changed);
    }
    pthread_mutex_unlock(&driver.lock);
    return NULL;
}

struct CUstream_st *stream_new_locked(CUcontext context)
{
    struct CUstream_st *stream = calloc(1, sizeof(*stream));

    if (!stream)
        fatal("no memory for a stream");
    stream->context = context;
    pthread_cond_init(&stream->more, NULL);
    if (pthread_create(&stream->thread, NULL, stream_main, stream))
        fatal("no thread for a stream");
    stream->next = driver.streams;
    driver.streams = stream;
    return stream;
}

/* Ends when all on it is done. */
void stream_close(struct CUstream_st *stream)
{
    struct CUstream_st **link;

    pthread_mutex_lock(&driver.lock);
    stream->closing = true;
    pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&driver.lock);
    pthread_join(stream->thread, NULL);

    pthread_mutex_lock(&driver.lock);
    for (link = &driver.streams; *link != stream; link = &(*link)->next)
        continue;
    *link = stream->next;
    pthread_mutex_unlock(&driver.lock);
    pthread_cond_destroy(&stream->more);
    free(stream);
}

void stream_put_locked(struct CUstream_st *stream, const struct operation *operation)
{
    struct operation *copy = malloc(sizeof(*copy));

    if (!copy)
        fatal("no memory for an operation");
    *copy = *operation;
    copy->next = NULL;
    if (copy->kind == COPY_IN)
        copy->host_sum = sum_of(copy->host, copy->size);
    if (copy->event)
        copy->event->references++;
    if (stream->last)
        stream->last->next = copy;
    else
        stream->first = copy;
    stream->last = copy;
    pthread_cond_signal(&stream->more);
}

bool in_flight_locked(const struct allocation *memory, const char *host, size_t size)
{
    for (struct CUstream_st *stream = driver.streams; stream; stream = stream->next)
        for (struct operation *at = stream->first; at; at = at->next) {
            for (unsigned i = 0; i < 3 && memory; i++)
                if (at->memory[i] == memory)
                    return true;
            if (host && at->host && at->host < host + size && at->host + at->size > host)
                return true;
        }
    return false;
}

void wait_idle_locked(const struct CUstream_st *stream)
{
    while (stream->first)
        pthread_cond_wait(&driver.changed, &driver.lock);
}

/*
 * rendezvous.h -- how the processes of a cache find each other without set-up: abstract Unix
 * sockets, which the kernel removes with their process.
 *
 *     NAME        one member, the holder: whoever bound it
 *     NAME/row    every member its own
 *
 * NAME is forebay-cache-UID-HASH; the hash is made of identity, memory domain and pid namespace.
 * A late comer asks NAME, then NAME/0 ... NAME/255, so it finds any living member, whoever died.
 * A new cache is made only by a process that holds NAME and has found nobody: not two at a time.
 * Both ends look at SO_PEERCRED and talk to their own user only.
 */
#ifndef FB_CACHE_RENDEZVOUS_H
#define FB_CACHE_RENDEZVOUS_H
#include <stdbool.h>
#include <stdint.h>

#include "cache/cache.h"

#define FB_NAME_TEXT FB_CACHE_NAME_BYTES
#define FB_NAME_PREFIX "forebay-cache-"
#define FB_HOLDER (-1) /* instead of a row */

/* The name of the cache with this hash, for this user. */
void fb_rendezvous_name(char name[FB_NAME_TEXT], uint64_t hash);
/* Listen as `row`, or as the holder; -1: the name is taken, or cannot be. */
int fb_rendezvous_bind(const char *name, int row);
/* Ask for the memory; a descriptor, or -1: nobody there, or no answer in time. `id` tells which
 * segment it is. */
int fb_rendezvous_ask(const char *name, int row, int timeout_ms, uint64_t *id);
/* Ask everybody there may be. */
int fb_rendezvous_ask_all(const char *name, int timeout_ms, uint64_t *id);
/* Answer all who wait on `listener`. */
void fb_rendezvous_answer(int listener, int memory, uint64_t id);

/* The memory domain: the deepest cgroup with a memory limit, 0 if there is none. `root` is "" for
 * the real system. */
uint64_t fb_rendezvous_domain(const char *root);
/* What else must agree: processes that cannot see each other's life cannot share. */
uint64_t fb_rendezvous_pid_space(void);
#endif

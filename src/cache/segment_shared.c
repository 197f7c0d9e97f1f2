#include "cache/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Map it, and not into children: a fork that writes here would be a member nobody knows. */
static int map(struct fb_segment *segment, forebay_error *error)
{
    struct stat status;
    void *base;

    if (fstat(segment->fd, &status))
        return fb_fail_errno(error, FOREBAY_IO, "cache: cannot look at the shared memory");
    segment->grain = fb_max((uint64_t)status.st_blksize, 4 * FB_KIB);
    base = mmap(NULL, segment->layout.total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                segment->fd, 0);
    if (base == MAP_FAILED)
        return fb_fail_errno(error, FOREBAY_NO_MEMORY, "cache: cannot map %llu bytes",
                             (unsigned long long)segment->layout.total);
    segment->base = base;
    madvise(base, segment->layout.total, MADV_DONTFORK);
    fb_segment_aim(segment);
    return FOREBAY_OK;
}

static uint64_t random_id(void)
{
    uint64_t id;

    return getrandom(&id, sizeof(id), 0) == sizeof(id) ? id | 1 : (uint64_t)getpid() | 1;
}

int fb_segment_shared_new(struct fb_segment *segment, const struct fb_geometry *geometry,
                          forebay_error *error)
{
    int status;

    *segment = (struct fb_segment){ .geometry = *geometry };
    fb_geometry_layout(geometry, &segment->layout);
    segment->fd = memfd_create("forebay-cache", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment->fd < 0)
        return fb_fail_errno(error, FOREBAY_NO_MEMORY, "cache: no shared memory");
    if (ftruncate(segment->fd, (off_t)segment->layout.total) ||
        fcntl(segment->fd, F_ADD_SEALS, SEALS)) {
        status = fb_fail_errno(error, FOREBAY_NO_MEMORY, "cache: no shared memory of %llu bytes",
                               (unsigned long long)segment->layout.total);
        goto fail;
    }
    status = map(segment, error);
    if (status)
        goto fail;
    fb_segment_format(segment, random_id());
    return FOREBAY_OK;

fail:
    fb_segment_release(segment, false);
    return status;
}

/* Is the file what a member would have made? Its size can no longer change: it is sealed. */
static int check(int fd, struct fb_header *header, struct fb_layout *layout, forebay_error *error)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &status))
        return fb_fail(error, FOREBAY_BAD_DATA, "cache: shared memory that is not sealed");
    if (pread(fd, header, sizeof(*header), 0) != sizeof(*header) ||
        header->magic != FB_SEGMENT_MAGIC || header->version != FB_SEGMENT_VERSION ||
        !header->ready || !fb_geometry_layout(&header->geometry, layout) ||
        (uint64_t)status.st_size != layout->total)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "cache: the shared memory is damaged or of another version of forebay");
    return FOREBAY_OK;
}

int fb_segment_shared_attach(struct fb_segment *segment, int fd, forebay_error *error)
{
    struct fb_header header;
    struct fb_layout layout;
    int status = check(fd, &header, &layout, error);

    if (status)
        return status;
    *segment = (struct fb_segment){
        .geometry = header.geometry, .layout = layout, .fd = fd, .id = header.id
    };
    return map(segment, error);
}

void fb_segment_punch(struct fb_segment *segment, uint64_t from, uint64_t to)
{
    uint64_t start = fb_round_up(from, 4 * FB_KIB), end = to & ~(4 * FB_KIB - 1);

    if (start >= end)
        return; /* inside one page of the system, which another unit may use */
    /* Our own view first, all at once: the hole is then punched twice as fast. */
    madvise(segment->data + start, end - start, MADV_DONTNEED);
    if (segment->fd >= 0)
        fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(segment->layout.data_at + start), (off_t)(end - start));
}

/* fuzz_snapshot_file.c -- any bytes as a page. The checksum is made right in every other case, else nothing
 * behind it would ever be reached. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/snapshot_file.h"
#include "monitor/postmortem.h"
#include "monitor/verdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(struct fb_snapshot *page)
{
    char sentence[FB_DEATH_BYTES], verdict[256];

    if (strlen(page->name) >= sizeof(page->name) || page->worker_count > FB_SNAPSHOT_WORKERS)
        abort();
    fb_death_tell(page, page->samples, page->batches, page->bytes & 1, sentence);
    fb_verdict_tell(page, verdict, sizeof(verdict));
    (void)fb_snapshot_is_alive(page);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char file[FB_SNAPSHOT_FILE_BYTES];
    struct fb_snapshot page;

    if (fb_snapshot_file_parse(&page, data, size))
        use(&page);
    /* As if it were the contents of a page that was written properly. */
    memset(file, 0, sizeof(file));
    memset(&page, 0, sizeof(page));
    memcpy(&page, data, size < sizeof(page) ? size : sizeof(page));
    fb_snapshot_file_format(file, &page);
    if (!fb_snapshot_file_parse(&page, file, sizeof(file)))
        abort();
    use(&page);
    return 0;
}

/* Stream a folder of LiDAR scans once: cc first.c $(pkg-config --cflags --libs forebay) */
#include <forebay.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    const char *settings[] = { "source.kind=bin", argc > 1 ? argv[1] : "source.path=scans/*.bin",
                               "batch.size=16", "batch.collate=pad", "memory.budget=256MiB" };
    forebay_options options = FOREBAY_OPTIONS_INIT;
    forebay_loader *loader;
    forebay_batch *batch;
    forebay_error error;
    size_t samples = 0;
    int status;

    options.settings = settings;
    options.setting_count = 5;
    if (forebay_open(&loader, &options, &error))
        return fprintf(stderr, "%s\n", error.message), 1;
    while ((status = forebay_next(&batch, loader, &error)) == FOREBAY_OK) {
        samples += batch->samples; /* batch->fields: index, points, points_length */
        forebay_batch_release(batch);
    }
    forebay_close(loader);
    printf("%zu samples\n", samples);
    return status == FOREBAY_END ? 0 : (fprintf(stderr, "%s\n", error.message), 1);
}

/* state_file.h -- `run --resume` and `--save-state`: the state of a loader as a file of JSON. */
#ifndef CLI_STATE_FILE_H
#define CLI_STATE_FILE_H
#include "options.h"

/* Go on from the states in these files (one, or those of all ranks). *epoch is the one that comes
 * next. */
int state_file_load(forebay_loader *loader, const struct texts *paths, uint64_t *epoch,
                    forebay_error *error);
int state_file_save(const forebay_loader *loader, const char *path, forebay_error *error);
#endif

/*
 * source_audio.c -- speech: the utterances of JSON-lines manifests, their sound and their text.
 *
 * Fields are `audio` (f32, mono), `text` (u8) and what else batch.fields names, as text. A unit is
 * one field of one utterance: unit = utterance x fields + field. Without `offset` an utterance is
 * its whole file and `duration` a hint; with it, that part of the file. How many frames there are
 * is read from the file's header when it is first wanted, and remembered.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/audio/audio.h"

void fb_audio_close(struct fb_source *source)
{
    struct fb_audio *audio = (struct fb_audio *)source;
    uint64_t count = audio->files.count;

    for (uint64_t i = 0; audio->fds && i < count; i++)
        if (audio->fds[i] >= 0)
            close(audio->fds[i]);
    fb_block_free(audio->budget, FB_STAGE_INDEX, audio->fds, count, sizeof(*audio->fds));
    fb_block_free(audio->budget, FB_STAGE_INDEX, audio->ends, count, sizeof(*audio->ends));
    fb_block_free(audio->budget, FB_STAGE_INDEX, audio->rows, audio->base.sample_count,
                  sizeof(*audio->rows));
    fb_block_free(audio->budget, FB_STAGE_INDEX, audio->fields, FB_AUDIO_FIELDS,
                  sizeof(*audio->fields));
    fb_tape_release(&audio->utterances);
    fb_tape_release(&audio->lengths);
    fb_files_release(&audio->files);
    fb_block_free(audio->budget, FB_STAGE_INDEX, audio, 1, sizeof(*audio));
}

static uint32_t text_length(const struct fb_audio *audio, uint64_t sample, unsigned field)
{
    return ((const uint32_t *)(void *)
                audio->lengths.memory)[sample * (audio->base.field_count - 1) + field - 1];
}

static uint64_t manifest_of(const struct fb_audio *audio, uint64_t sample)
{
    uint64_t number = 0;

    while (audio->ends[number] <= sample)
        number++;
    return number;
}

/* ---- one utterance: its line, its file ---- */

static int read_line(const struct fb_audio *audio, uint64_t sample, char *room,
                     struct fb_utterance *said, forebay_error *error)
{
    const struct fb_audio_utterance *utterance = fb_audio_at(audio, sample);
    uint64_t manifest = manifest_of(audio, sample);
    char place[FB_PATH_BYTES];
    int status =
        fb_read_exactly(audio->fds[manifest], room, utterance->bytes, utterance->at, error);

    if (!status && fb_manifest_hash(room, utterance->bytes) != utterance->hash)
        status = fb_fail(error, FOREBAY_BAD_DATA, "it changed since it was opened");
    if (!status)
        status = fb_utterance_parse(said, room, utterance->bytes, error);
    if (status) {
        fb_files_place(&audio->files, manifest, place, sizeof(place));
        fb_error_context(error, "'%s', line %" PRIu32, place, utterance->line);
    }
    return status;
}

/* Relative paths start at the manifest's folder. */
int fb_audio_path(const struct fb_audio *audio, uint64_t manifest, const char *said, char *path,
                  size_t size, forebay_error *error)
{
    size_t used = 0;
    int length;

    if (said[0] != '/') {
        fb_files_path(&audio->files, manifest, path, size);
        used = (size_t)(strrchr(path, '/') - path) + 1;
    }
    length = snprintf(path + used, size - used, "%s", said);
    if (length < 0 || (size_t)length >= size - used)
        return fb_fail(error, FOREBAY_BAD_DATA, "'audio_filepath' is too long: '%.60s...'", said);
    return FOREBAY_OK;
}

static int find_part(const struct fb_audio *audio, struct fb_audio_spoken *spoken,
                     forebay_error *error)
{
    const struct fb_sound *sound = &spoken->sound;
    uint32_t rate = audio->rate ? audio->rate : sound->rate;
    uint64_t count;

    if (sound->rate != rate && !audio->resample)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "its rate is %" PRIu32 ", that of the first sound "
                       "%" PRIu32 "; source.rate=%" PRIu32 " would resample it",
                       sound->rate, rate, rate);
    spoken->first = 0;
    spoken->frames = sound->frames;
    if (spoken->said.offset >= 0) {
        spoken->first = (uint64_t)llround(spoken->said.offset * sound->rate);
        count = (uint64_t)llround(spoken->said.duration * sound->rate);
        if (spoken->first > sound->frames)
            return fb_fail(error, FOREBAY_BAD_DATA,
                           "its offset of %g s lies behind its end at %g s", spoken->said.offset,
                           (double)sound->frames / sound->rate);
        spoken->frames = fb_min(count, sound->frames - spoken->first);
    }
    count = fb_sound_frames_at(spoken->frames, sound->rate, rate);
    if (audio->frames_max && count > audio->frames_max)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "it lasts %.1f s, but the manifest promises at most "
                       "%.1f s for any utterance; correct its 'duration'",
                       (double)count / rate, (double)audio->frames_max / rate);
    return FOREBAY_OK;
}

/* Open the sound of a sample and find its part. On success the file is the caller's to close. */
int fb_audio_open_spoken(const struct fb_audio *audio, uint64_t sample, struct fb_scratch scratch,
                         struct fb_reader *reader, struct fb_audio_spoken *spoken,
                         struct fb_extract *file, forebay_error *error)
{
    char *line = (char *)scratch.memory + FB_SOUND_WORK_BYTES;
    int status = read_line(audio, sample, line, &spoken->said, error);

    if (status)
        return status;
    status = fb_audio_path(audio, manifest_of(audio, sample), spoken->said.path, file->path,
                           sizeof(file->path), error);
    fb_utterance_release(&spoken->said); /* before another library takes memory; numbers stay */
    if (!status)
        status = fb_extract_open(file, reader, error);
    if (status)
        return status;
    status = fb_sound_probe(&spoken->sound, &file->input, scratch.memory, error);
    if (!status)
        status = find_part(audio, spoken, error);
    if (status) {
        if (fb_status_is_data(status))
            fb_error_context(error, "'%s'", file->path);
        fb_extract_close(file);
    }
    return status;
}

static uint64_t rows_of(const struct fb_audio *audio, const struct fb_audio_spoken *spoken)
{
    return fb_sound_frames_at(spoken->frames, spoken->sound.rate, audio->rate);
}

/* ---- the seam ---- */

static unsigned audio_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    for (uint32_t i = 0; i < source->field_count; i++)
        parts[i] = (struct fb_part){ .unit = sample * source->field_count + i,
                                     .field = i,
                                     .rows = FB_ALL_ROWS };
    return source->field_count;
}

static struct fb_extent audio_extent(const struct fb_source *source, uint64_t unit)
{
    const struct fb_audio *audio = (const struct fb_audio *)source;
    uint64_t sample = unit / source->field_count;
    unsigned field = (unsigned)(unit % source->field_count);
    uint64_t rows = atomic_load_explicit(&audio->rows[sample], memory_order_relaxed);

    if (rows == FB_AUDIO_BROKEN)
        return (struct fb_extent){ .known = FB_EXTENT_BROKEN };
    if (field > 0)
        return (struct fb_extent){ .known = FB_EXTENT_EXACT,
                                   .columns = 1,
                                   .rows = text_length(audio, sample, field) };
    if (rows == 0)
        return (struct fb_extent){ .known = FB_EXTENT_UNKNOWN };
    return (struct fb_extent){ .known = FB_EXTENT_EXACT, .rows = rows - 1, .columns = 1 };
}

static int audio_probe(struct fb_source *source, uint64_t unit, const struct fb_load *load,
                       forebay_error *error)
{
    struct fb_audio *audio = (struct fb_audio *)source;
    uint64_t sample = unit / source->field_count;
    struct fb_extract file;
    struct fb_audio_spoken spoken;
    int status =
        fb_audio_open_spoken(audio, sample, load->scratch, load->reader, &spoken, &file, error);

    if (!status) {
        fb_extract_close(&file);
        atomic_store_explicit(&audio->rows[sample], 1 + rows_of(audio, &spoken),
                              memory_order_relaxed);
    }
    return status;
}

static int check_load(const struct fb_load *load, uint64_t rows, uint64_t bytes,
                      forebay_error *error)
{
    if (load->rows != rows || load->first_row || load->bytes != bytes)
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "it changed since its header was read: %" PRIu64 " frames then, %" PRIu64
                       " now",
                       load->rows, rows);
    return FOREBAY_OK;
}

static int load_sound(const struct fb_audio *audio, const struct fb_load *load,
                      forebay_error *error)
{
    struct fb_extract file;
    struct fb_audio_spoken spoken;
    int status = fb_audio_open_spoken(audio, load->unit / audio->base.field_count, load->scratch,
                                      load->reader, &spoken, &file, error);

    if (status)
        return status;
    status =
        check_load(load, rows_of(audio, &spoken), rows_of(audio, &spoken) * sizeof(float), error);
    if (!status)
        status = fb_sound_read_at(&spoken.sound, &file.input, spoken.first, spoken.frames,
                                  audio->rate, load->to, load->scratch.memory, error);
    if (status && fb_status_is_data(status))
        fb_error_context(error, "'%s'", file.path);
    fb_extract_close(&file);
    return status;
}

static int load_text(const struct fb_audio *audio, const struct fb_load *load, unsigned field,
                     forebay_error *error)
{
    uint64_t sample = load->unit / audio->base.field_count;
    struct fb_utterance said;
    size_t bytes;
    int status = read_line(audio, sample, load->scratch.memory, &said, error);

    if (status)
        return status;
    bytes = fb_utterance_text(&said, audio->fields[field].name, load->to, load->bytes);
    fb_utterance_release(&said);
    return bytes == load->bytes
               ? FOREBAY_OK
               : fb_fail(error, FOREBAY_BAD_USE, "'%s' has %zu bytes, not %" PRIu64,
                         audio->fields[field].name, bytes, load->bytes);
}

static int audio_load(const struct fb_source *source, const struct fb_load *load,
                      forebay_error *error)
{
    const struct fb_audio *audio = (const struct fb_audio *)source;
    unsigned field = (unsigned)(load->unit % source->field_count);

    if (load->scratch.bytes < FB_AUDIO_SCRATCH_BYTES)
        return fb_fail(error, FOREBAY_BAD_USE, "audio: a load needs %" PRIu64 " bytes of scratch",
                       FB_AUDIO_SCRATCH_BYTES);
    return field ? load_text(audio, load, field, error) : load_sound(audio, load, error);
}

static float audio_length(const struct fb_source *source, uint64_t sample)
{
    return fb_audio_at((const struct fb_audio *)source, sample)->seconds;
}

/* Only an utterance that is all of its file. */
static bool audio_file(const struct fb_source *source, uint64_t unit, struct fb_scratch scratch,
                       char *path, size_t size, uint64_t *bytes)
{
    const struct fb_audio *audio = (const struct fb_audio *)source;
    uint64_t sample = unit / source->field_count;
    struct fb_utterance said;
    struct stat about;
    forebay_error error;
    bool whole;

    if (unit % source->field_count != 0 || scratch.bytes < FB_AUDIO_SCRATCH_BYTES ||
        read_line(audio, sample, (char *)scratch.memory + FB_SOUND_WORK_BYTES, &said, &error))
        return false;
    whole = said.offset < 0 && !fb_audio_path(audio, manifest_of(audio, sample), said.path, path,
                                              size, &error);
    fb_utterance_release(&said);
    if (!whole || stat(path, &about) != 0)
        return false;
    *bytes = (uint64_t)about.st_size;
    return true;
}

static void audio_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    const struct fb_audio *audio = (const struct fb_audio *)source;
    uint64_t sample = unit / source->field_count;
    size_t used;

    fb_files_place(&audio->files, manifest_of(audio, sample), text, size);
    used = strlen(text);
    snprintf(text + used, size - used, ":%" PRIu32, fb_audio_at(audio, sample)->line);
}

const struct fb_source_ops fb_source_audio = {
    .kind = "audio",
    .description = "speech: sound and text of JSON-lines manifests",
    .open = fb_audio_open,
    .close = fb_audio_close,
    .parts = audio_parts,
    .extent = audio_extent,
    .probe = audio_probe,
    .load = audio_load,
    .length = audio_length,
    .file = audio_file,
    .place = audio_place,
};

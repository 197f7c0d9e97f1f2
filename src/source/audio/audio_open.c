/* audio_open.c -- reads the manifests: which utterances there are, where their lines lie, how long
 * they are. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/audio/audio.h"

#define MANIFESTS_MAX 256 /* each is kept open */

struct opening {
    struct fb_audio *audio;
    const struct fb_config *config;
    const struct fb_log *log;
    struct fb_reader *reader;
    struct fb_scratch scratch;
    uint64_t manifest;
    double shortest, longest; /* that are wanted */
    uint64_t too_short, too_long, wrong;
    float seconds_max;
};

static int add_lengths(struct opening *opening, const struct fb_utterance *said,
                       forebay_error *error)
{
    struct fb_audio *audio = opening->audio;
    unsigned count = audio->base.field_count - 1;
    uint32_t *lengths = fb_tape_add(&audio->lengths, count * sizeof(*lengths),
                                    "lengths of the utterances' texts", error);

    if (!lengths)
        return fb_failed(error);
    for (unsigned i = 0; said && i < count; i++) {
        struct fb_field *field = &audio->fields[i + 1];

        lengths[i] = (uint32_t)fb_utterance_text(said, field->name, opening->scratch.memory,
                                                 FB_SOUND_WORK_BYTES);
        field->bytes_max = fb_max(field->bytes_max, lengths[i]);
        audio->base.unit_bytes_total += lengths[i];
    }
    return FOREBAY_OK;
}

/* A line that cannot be read is kept: its utterance is broken, and load() says why. */
static int add_utterance(struct opening *opening, const struct fb_audio_utterance *utterance,
                         const struct fb_utterance *said, forebay_error *error)
{
    struct fb_audio *audio = opening->audio;
    struct fb_audio_utterance *kept =
        fb_tape_add(&audio->utterances, sizeof(*kept), "utterances", error);

    if (!kept)
        return fb_failed(error);
    *kept = *utterance;
    audio->base.sample_count++;
    opening->wrong += !said;
    if (kept->seconds > opening->seconds_max)
        opening->seconds_max = kept->seconds;
    return add_lengths(opening, said, error);
}

/* How long it is, from the header of its file; below 0 if that cannot be read. */
static float measure(const struct opening *opening, const struct fb_utterance *said)
{
    struct fb_extract file;
    struct fb_sound sound;
    float seconds = -1;

    if (fb_audio_path(opening->audio, opening->manifest, said->path, file.path, sizeof(file.path),
                      NULL) ||
        fb_extract_open(&file, opening->reader, NULL))
        return seconds;
    if (!fb_sound_probe(&sound, &file.input, opening->scratch.memory, NULL))
        seconds = (float)((double)sound.frames / sound.rate);
    fb_extract_close(&file);
    return seconds;
}

static int on_line(void *data, const char *line, size_t bytes, uint64_t at, uint64_t number,
                   forebay_error *error)
{
    struct opening *opening = data;
    struct fb_audio_utterance utterance = { .at = at,
                                            .bytes = (uint32_t)bytes,
                                            .line = (uint32_t)number,
                                            .hash = fb_manifest_hash(line, bytes),
                                            .seconds = FB_AUDIO_BAD_LINE };
    struct fb_utterance said;
    int status = fb_utterance_parse(&said, line, bytes, error);

    if (number % 8192 == 0 && fb_progress(opening->log, "reading manifests", number, 0, error))
        return FOREBAY_STOPPED;
    if (status) { /* the very first one: this is no manifest */
        if (opening->audio->base.sample_count == 0) {
            fb_error_context(error, "line %" PRIu64, number);
            return status;
        }
        return add_utterance(opening, &utterance, NULL, error);
    }
    utterance.seconds = said.duration < 0 ? measure(opening, &said) : (float)said.duration;
    if (utterance.seconds >= 0 && utterance.seconds < opening->shortest)
        opening->too_short++;
    else if (utterance.seconds > opening->longest)
        opening->too_long++;
    else
        status = add_utterance(opening, &utterance, &said, error);
    fb_utterance_release(&said);
    return status;
}

static int read_manifests(struct opening *opening, forebay_error *error)
{
    struct fb_audio *audio = opening->audio;
    char *room = (char *)opening->scratch.memory + FB_SOUND_WORK_BYTES;

    for (uint64_t i = 0; i < audio->files.count; i++) {
        char path[FB_PATH_BYTES];
        uint64_t bytes;
        int status;

        opening->manifest = i;
        fb_files_path(&audio->files, i, path, sizeof(path));
        status = fb_reader_open(opening->reader, path, &audio->fds[i], &bytes, error);
        if (status)
            return status;
        status = fb_manifest_walk(audio->fds[i], room, on_line, opening, error);
        if (status) {
            if (status != FOREBAY_STOPPED)
                fb_error_context(error, "'%s'", path);
            return status;
        }
        audio->ends[i] = audio->base.sample_count;
    }
    return FOREBAY_OK;
}

static int say_left_out(const struct opening *opening, forebay_error *error)
{
    uint64_t kept = opening->audio->base.sample_count;
    uint64_t all = kept + opening->too_short + opening->too_long;

    if (kept == 0)
        return fb_fail(error, FOREBAY_MISSING,
                       all ? "all %" PRIu64 " utterances are shorter than "
                             "source.min_duration or longer than source.max_duration"
                           : "the manifest has no utterance (%" PRIu64 " lines)",
                       all);
    if (all > kept)
        fb_say(opening->log,
               "audio: %" PRIu64 " of %" PRIu64 " utterances left out: %" PRIu64
               " shorter than %g s, %" PRIu64 " longer than %g s",
               all - kept, all, opening->too_short, opening->shortest, opening->too_long,
               opening->longest);
    if (opening->wrong)
        fb_warn(opening->log, "audio: %" PRIu64 " lines of the manifest are malformed",
                opening->wrong);
    return FOREBAY_OK;
}

/* The first sound that can be read says at which rate all are, unless the configuration does. */
static int find_rate(struct opening *opening, forebay_error *error)
{
    struct fb_audio *audio = opening->audio;
    int status = FOREBAY_OK;

    for (uint64_t i = 0; !audio->rate && i < audio->base.sample_count && i < 16; i++) {
        forebay_error *first = i ? NULL : error;
        struct fb_extract file;
        struct fb_audio_spoken spoken;
        int failed = fb_audio_open_spoken(audio, i, opening->scratch, opening->reader, &spoken,
                                          &file, first);

        if (!failed) {
            fb_extract_close(&file);
            audio->rate = spoken.sound.rate;
        }
        status = i ? status : failed;
    }
    return audio->rate ? FOREBAY_OK : status;
}

static int add_field(struct fb_audio *audio, const char *name, forebay_error *error)
{
    struct fb_field *field = &audio->fields[audio->base.field_count];

    if (audio->base.field_count == FB_AUDIO_FIELDS || strlen(name) >= FB_NAME_BYTES)
        return fb_fail(error, FOREBAY_BAD_CONFIG,
                       "batch.fields: more than %d names, or one longer "
                       "than %d bytes: '%.80s'",
                       FB_AUDIO_FIELDS, FB_NAME_BYTES - 1, name);
    *field = (struct fb_field){ .dtype = FOREBAY_U8,
                                .items = 1,
                                .vary = 1,
                                .ndim = 1,
                                .cell_bytes = 1,
                                .bytes_max = 1,
                                .always_ragged = true };
    strcpy(field->name, name);
    audio->base.field_count++;
    return FOREBAY_OK;
}

/* `audio`, `text`, and the other keys that batch.fields names. */
static int describe_fields(struct fb_audio *audio, const struct fb_config *config,
                           forebay_error *error)
{
    const struct fb_texts *wanted = &config->batch_fields;
    int status;

    audio->fields = fb_block_new(audio->budget, FB_STAGE_INDEX, FB_AUDIO_FIELDS,
                                 sizeof(*audio->fields), "fields of the source", error);
    if (!audio->fields)
        return fb_failed(error);
    audio->base.fields = audio->fields;
    audio->fields[0] = (struct fb_field){ .name = "audio",
                                          .dtype = FOREBAY_F32,
                                          .items = 1,
                                          .vary = 1,
                                          .ndim = 1,
                                          .cell_bytes = sizeof(float) };
    audio->base.field_count = 1;
    status = add_field(audio, "text", error);
    for (size_t i = 0; i < wanted->count && !status; i++)
        if (strcmp(wanted->values[i], "audio") && strcmp(wanted->values[i], "text") &&
            strcmp(wanted->values[i], "index"))
            status = add_field(audio, wanted->values[i], error);
    audio->base.parts_max = audio->base.field_count;
    return status;
}

static int one_real(const struct fb_config *config, const char *key, const struct fb_reals *reals,
                    double fallback, double *value, forebay_error *error)
{
    int status = FOREBAY_OK;

    *value = reals->count ? reals->values[0] : fallback;
    if (reals->count > 1 || !(*value >= 0)) {
        status = fb_fail(error, FOREBAY_BAD_CONFIG, "%s must be one number of seconds", key);
        fb_config_place(config, key, error);
    }
    return status;
}

static int check_config(struct opening *opening, forebay_error *error)
{
    const struct fb_config *config = opening->config;
    struct fb_audio *audio = opening->audio;
    int status = one_real(config, "source.min_duration", &config->source_min_duration, 0,
                          &opening->shortest, error);

    if (!status)
        status = one_real(config, "source.max_duration", &config->source_max_duration, INFINITY,
                          &opening->longest, error);
    if (status)
        return status;
    if (config->source_path.count == 0)
        return fb_fail(error, FOREBAY_BAD_CONFIG, "source.path is not set: where is the manifest?");
    if (!config->source_rate.is_auto &&
        (config->source_rate.value == 0 || config->source_rate.value > FB_SOUND_RATE_MAX)) {
        status =
            fb_fail(error, FOREBAY_BAD_CONFIG, "source.rate must be 1 to %u", FB_SOUND_RATE_MAX);
        fb_config_place(config, "source.rate", error);
    }
    audio->resample = !config->source_rate.is_auto;
    audio->rate = (uint32_t)config->source_rate.value;
    return status;
}

static int list_manifests(struct opening *opening, forebay_error *error)
{
    const struct fb_config *config = opening->config;
    struct fb_audio *audio = opening->audio;
    int status = fb_files_list(&audio->files, "source.path", config->source_path.values,
                               config->source_path.count, config->folder, audio->budget,
                               opening->log, error);

    if (status)
        return status;
    if (audio->files.count > MANIFESTS_MAX)
        return fb_fail(error, FOREBAY_BAD_CONFIG,
                       "source.path: %" PRIu64 " files; at most %d "
                       "manifests can be read together",
                       audio->files.count, MANIFESTS_MAX);
    audio->fds = fb_block_new(audio->budget, FB_STAGE_INDEX, audio->files.count,
                              sizeof(*audio->fds), "manifests", error);
    for (uint64_t i = 0; audio->fds && i < audio->files.count; i++)
        audio->fds[i] = -1;
    audio->ends = fb_block_new(audio->budget, FB_STAGE_INDEX, audio->files.count,
                               sizeof(*audio->ends), "manifests", error);
    return audio->fds && audio->ends ? FOREBAY_OK : fb_failed(error);
}

static int make_rows(struct fb_audio *audio, forebay_error *error)
{
    uint64_t count = audio->base.sample_count;

    audio->rows = fb_block_new(audio->budget, FB_STAGE_INDEX, count, sizeof(*audio->rows),
                               "lengths of the utterances", error);
    if (!audio->rows)
        return fb_failed(error);
    for (uint64_t i = 0; i < count; i++) {
        if (fb_audio_at(audio, i)->seconds != FB_AUDIO_BAD_LINE)
            continue;
        atomic_init(&audio->rows[i], FB_AUDIO_BROKEN);
        audio->base.broken_count += audio->base.field_count;
    }
    return FOREBAY_OK;
}

/* Durations are rounded, and only hints: a second more is let through. */
static void describe(struct opening *opening)
{
    struct fb_audio *audio = opening->audio;
    struct fb_source *base = &audio->base;
    double frames = 0;

    audio->frames_max = (uint64_t)ceil((double)opening->seconds_max * audio->rate) + audio->rate;
    for (uint64_t i = 0; i < base->sample_count; i++)
        frames += fmax(0, (double)fb_audio_at(audio, i)->seconds * audio->rate);
    base->unit_bytes_total += (uint64_t)frames * sizeof(float);
    base->unit_bytes_max = audio->frames_max * sizeof(float);
    for (unsigned f = 1; f < base->field_count; f++)
        base->unit_bytes_max = fb_max(base->unit_bytes_max, audio->fields[f].bytes_max);
    base->unit_count = base->sample_count * base->field_count;
    base->scratch_bytes = FB_AUDIO_SCRATCH_BYTES;
    base->library_bytes = FB_AUDIO_LIBRARY_BYTES;
    base->identity = fb_files_hash(&audio->files, fb_mix2(FB_KIND_AUDIO, audio->rate));
    base->fingerprint = fb_mix2(FB_KIND_AUDIO, base->sample_count);
    for (uint64_t i = 0; i < base->sample_count; i++) {
        const struct fb_audio_utterance *utterance = fb_audio_at(audio, i);

        base->identity = fb_mix2(base->identity, utterance->hash);
        /* A copied manifest may name other folders: what stays is how long each utterance is. */
        base->fingerprint = fb_mix2(base->fingerprint,
                                    (uint64_t)(1e6 * fmax(0, (double)utterance->seconds)));
    }
    for (unsigned f = 1; f < base->field_count; f++)
        base->identity = fb_mix2(
            base->identity, fb_manifest_hash(audio->fields[f].name, strlen(audio->fields[f].name)));
}

static int open_all(struct opening *opening, forebay_error *error)
{
    struct fb_audio *audio = opening->audio;
    int status = describe_fields(audio, opening->config, error);

    if (!status)
        status = list_manifests(opening, error);
    if (!status)
        status = read_manifests(opening, error);
    if (!status)
        status = say_left_out(opening, error);
    if (status)
        return status;
    fb_tape_trim(&audio->utterances);
    fb_tape_trim(&audio->lengths);
    status = make_rows(audio, error);
    if (!status)
        status = find_rate(opening, error);
    if (!status)
        describe(opening);
    return status;
}

/* While the source is opened it reads as a worker does. */
static int open_with_hands(struct opening *opening, forebay_error *error)
{
    struct fb_budget *budget = opening->audio->budget;
    struct fb_reader_options options = { .log = opening->log };
    uint64_t outside = FB_READER_BYTES + FB_SOUND_LIBRARY_BYTES + FB_MANIFEST_LIBRARY_BYTES;
    int status = fb_budget_reserve(budget, FB_STAGE_INDEX, outside, "reading the manifest", error);

    if (status)
        return status;
    status = fb_reader_new(&opening->reader, &options, error);
    if (!status) {
        opening->scratch.memory = fb_block_new(budget, FB_STAGE_INDEX, 1, FB_AUDIO_SCRATCH_BYTES,
                                               "reading the manifest", error);
        opening->scratch.bytes = FB_AUDIO_SCRATCH_BYTES;
        status = opening->scratch.memory ? open_all(opening, error) : fb_failed(error);
        fb_block_free(budget, FB_STAGE_INDEX, opening->scratch.memory, 1, FB_AUDIO_SCRATCH_BYTES);
        fb_reader_free(opening->reader);
    }
    fb_budget_refund(budget, FB_STAGE_INDEX, outside);
    return status;
}

int fb_audio_open(struct fb_source **out, const struct fb_config *config, struct fb_budget *budget,
                  const struct fb_log *log, forebay_error *error)
{
    struct opening opening = { .config = config, .log = log };
    struct fb_audio *audio;
    int status;

    audio = fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*audio), "audio source", error);
    if (!audio)
        return fb_failed(error);
    audio->base.ops = &fb_source_audio;
    audio->budget = audio->utterances.budget = audio->lengths.budget = budget;
    audio->files = (struct fb_files){ .list.budget = budget,
                                      .folders.budget = budget,
                                      .names.budget = budget };
    opening.audio = audio;
    status = check_config(&opening, error);
    if (!status)
        status = open_with_hands(&opening, error);
    if (status) {
        fb_audio_close(&audio->base);
        return status;
    }
    *out = &audio->base;
    return FOREBAY_OK;
}

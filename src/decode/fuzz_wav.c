/* Any bytes as a sound: WAV, FLAC, MP3 and the check that stands before libvorbis. What libsndfile would
 * be given is its own fuzzers' matter, so only our part of it is tried. */
#include <string.h>

#include "base/size.h"
#include "decode/sound_inside.h"

#define FRAMES_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_memory(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *e)
{
    (void)e;
    memcpy(into, (const uint8_t *)data + offset, bytes);
    return FOREBAY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static _Alignas(16) char work[FB_SOUND_WORK_BYTES];
    static float to[FRAMES_MAX];
    union {
        const void *constant;
        void *plain;
    } bytes = { data };
    struct fb_input input = { read_memory, bytes.plain, size };
    struct fb_sound sound;
    forebay_error error;

    if (size >= 4 && memcmp(data, "RIFF", 4) != 0 && memcmp(data, "fLaC", 4) != 0 &&
        data[0] != 0xff) {
        fb_vorbis_check(&input, work, &error);
        return 0;
    }
    if (size >= 12 && memcmp(data, "RIFF", 4) == 0) {
        bool known;

        if (fb_wav_probe(&sound, &input, work, &known, &error) || !known)
            return 0;
    }
    if (fb_sound_probe(&sound, &input, work, &error) || sound.format == FB_SOUND_OTHER)
        return 0;
    fb_sound_read(&sound, &input, 0, fb_min(sound.frames, FRAMES_MAX), to, work, &error);
    fb_sound_read(&sound, &input, sound.frames / 2, fb_min(sound.frames - sound.frames / 2, 100),
                  to, work, &error);
    return 0;
}

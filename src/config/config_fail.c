/* config_fail.c -- errors that say where; and what the user wrote, made fit to be shown. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config/key.h"

/* Bytes of the UTF-8 character at `text`, 0 if it is none or a control character. */
static size_t character_bytes(const unsigned char *text)
{
    size_t bytes = text[0] < 0x80 ? 1 : text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;

    if (text[0] < 0x20 || text[0] == 0x7f || (text[0] >= 0x80 && text[0] < 0xc2) || text[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    }
    /* Overlong forms, surrogates, what lies behind the last character, and C1 controls. */
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f) ||
        (text[0] == 0xc2 && text[1] < 0xa0))
        return 0;
    return bytes;
}

/* Copy `text` as far as it fits; "..." stands for the rest. */
static void show(char *shown, size_t size, const char *text)
{
    size_t used = 0;

    while (*text) {
        size_t bytes = character_bytes((const unsigned char *)text);

        if (used + 4 + sizeof("...") > size) {
            memcpy(shown + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(shown + used, bytes ? text : "?", bytes ? bytes : 1);
        used += bytes ? bytes : 1;
        text += bytes ? bytes : 1;
    }
    shown[used] = '\0';
}

struct fb_shown fb_show(const char *text)
{
    struct fb_shown shown;

    show(shown.text, sizeof(shown.text), text);
    return shown;
}

void fb_origin_place(const struct fb_origin *origin, struct fb_mark mark,
                     char place[sizeof(((forebay_error *)0)->place)])
{
    const size_t size = sizeof(((forebay_error *)0)->place);
    const char *name = origin->name;
    size_t length = strlen(name);
    char shown[sizeof(((forebay_error *)0)->place) - 48]; /* room for line and column */

    /* The end of a long path says more than its beginning. */
    if (length > sizeof(shown) - 8)
        name += length - (sizeof(shown) - 8);
    show(shown, sizeof(shown), name);
    if (origin->is_setting)
        snprintf(place, size, "%s", shown);
    else
        snprintf(place, size, "%s:%zu:%zu", shown, mark.line, mark.column);
}

int fb_config_fail(forebay_error *error, forebay_status status, const struct fb_origin *origin,
                   struct fb_mark mark, const char *format, ...)
{
    char text[sizeof(error->message)], place[sizeof(error->place)];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fb_origin_place(origin, mark, place);
    fb_fail(error, status, "%s: %s", place, text);
    fb_error_place(error, "%s", place);
    return status;
}

int fb_config_no_memory(forebay_error *error)
{
    return fb_fail(error, FOREBAY_NO_MEMORY, "no memory to read the configuration");
}

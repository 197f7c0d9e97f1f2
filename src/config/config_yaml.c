/*
 * config_yaml.c -- YAML text to a tree of nodes that know where they stood.
 *
 * The tree is bounded in depth, entries and nodes. Anchors and aliases are refused: a
 * configuration needs none, and a few of them can stand for billions of nodes.
 */
#include <string.h>
#include <strings.h>
#include <yaml.h>

#include "config/key.h"

struct reader {
    yaml_parser_t parser;
    struct fb_config_arena *arena;
    const struct fb_origin *origin;
    const char *text;
    size_t bytes, nodes;
    forebay_error *error;
};

static struct fb_mark mark_of(yaml_mark_t mark)
{
    return (struct fb_mark){ mark.line + 1, mark.column + 1 };
}

/* libyaml gives only a byte's number for text that is no valid UTF-8. */
static struct fb_mark mark_at_byte(const struct reader *reader, size_t offset)
{
    struct fb_mark mark = { 1, 1 };

    for (size_t i = 0; i < offset && i < reader->bytes; i++) {
        mark.column++;
        if (reader->text[i] == '\n')
            mark = (struct fb_mark){ mark.line + 1, 1 };
    }
    return mark;
}

static int fail_syntax(struct reader *reader)
{
    const yaml_parser_t *parser = &reader->parser;
    const char *problem = parser->problem ? parser->problem : "it is malformed";
    const char *context = parser->context ? parser->context : "while reading it";

    if (parser->error == YAML_MEMORY_ERROR)
        return fb_config_no_memory(reader->error);
    if (parser->error == YAML_READER_ERROR)
        return fb_config_fail(reader->error, FOREBAY_BAD_CONFIG, reader->origin,
                              mark_at_byte(reader, parser->problem_offset),
                              "this is no text in UTF-8: %s", problem);
    /* The commonest mistake of all: a glob such as *.npy without quotes. */
    if (strstr(context, "alias") || strstr(context, "anchor"))
        return fb_config_fail(reader->error, FOREBAY_BAD_CONFIG, reader->origin,
                              mark_of(parser->problem_mark),
                              "YAML gives * and & a meaning of their own: put a glob that begins "
                              "with one of them in quotes, e.g. \"*.npy\"");
    return fb_config_fail(reader->error, FOREBAY_BAD_CONFIG, reader->origin,
                          mark_of(parser->problem_mark), "this is not YAML: %s, %s", context,
                          problem);
}

static int next_event(struct reader *reader, yaml_event_t *event)
{
    return yaml_parser_parse(&reader->parser, event) ? FOREBAY_OK : fail_syntax(reader);
}

static int fail_at(struct reader *reader, const yaml_event_t *event, const char *message)
{
    return fb_config_fail(reader->error, FOREBAY_BAD_CONFIG, reader->origin,
                          mark_of(event->start_mark), "%s", message);
}

static const char *anchor_of(const yaml_event_t *event, const char **tag)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        *tag = (const char *)event->data.scalar.tag;
        return (const char *)event->data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT:
        *tag = (const char *)event->data.sequence_start.tag;
        return (const char *)event->data.sequence_start.anchor;
    case YAML_MAPPING_START_EVENT:
        *tag = (const char *)event->data.mapping_start.tag;
        return (const char *)event->data.mapping_start.anchor;
    default:
        *tag = NULL;
        return NULL;
    }
}

static int check_event(struct reader *reader, const yaml_event_t *event, unsigned depth)
{
    const char *tag, *anchor = anchor_of(event, &tag);

    if (anchor || event->type == YAML_ALIAS_EVENT)
        return fail_at(reader, event,
                       "anchors and aliases (&name, *name) are not used here: write the value out, "
                       "and a glob that begins with * in quotes");
    if (tag)
        return fail_at(reader, event,
                       "tags (!name) are not used here: write the value without it, or in quotes");
    if (depth > FB_CONFIG_DEPTH_MAX)
        return fail_at(reader, event, "nested too deeply: at most 8 levels are read");
    if (++reader->nodes > FB_CONFIG_NODES_MAX)
        return fail_at(reader, event, "too many values: at most 32768 are read");
    if (event->type == YAML_SCALAR_EVENT &&
        memchr(event->data.scalar.value, '\0', event->data.scalar.length))
        return fail_at(reader, event, "a text here must not hold a NUL character");
    return FOREBAY_OK;
}

static bool is_null(const char *text)
{
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcasecmp(text, "null") == 0;
}

void fb_node_init_text(struct fb_node *node, const char *text)
{
    *node = (struct fb_node){ .kind = is_null(text) ? FB_NODE_NULL : FB_NODE_TEXT, .text = text };
}

/* FNV-1a: only to find double keys without comparing each with each in full. */
static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static int add_child(struct reader *reader, struct fb_node *parent, struct fb_node *child)
{
    if (parent->count == FB_CONFIG_ENTRIES_MAX)
        return fb_config_fail(reader->error, FOREBAY_BAD_CONFIG, reader->origin, child->mark,
                              "too many entries: at most 4096 are read%s",
                              parent->kind == FB_NODE_LIST
                                  ? "; a longer list of paths goes into a file, as @file.txt"
                                  : "");
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->count++;
    return FOREBAY_OK;
}

static int check_double(struct reader *reader, const struct fb_node *parent,
                        const struct fb_node *child)
{
    for (const struct fb_node *other = parent->first; other; other = other->next) {
        char place[sizeof(reader->error->place)];

        if (other->key_hash != child->key_hash || strcmp(other->key, child->key) != 0)
            continue;
        fb_origin_place(reader->origin, other->key_mark, place);
        return fb_config_fail(reader->error, FOREBAY_BAD_CONFIG, reader->origin, child->key_mark,
                              "`%s` stands here twice; the first one is at %s",
                              fb_show(child->key).text, place);
    }
    return FOREBAY_OK;
}

static int read_node(struct reader *reader, const yaml_event_t *event, unsigned depth,
                     struct fb_node **out);

static int read_list(struct reader *reader, struct fb_node *list, unsigned depth)
{
    for (;;) {
        yaml_event_t event;
        struct fb_node *child;
        int status = next_event(reader, &event);

        if (status)
            return status;
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return FOREBAY_OK;
        }
        status = read_node(reader, &event, depth + 1, &child);
        yaml_event_delete(&event);
        if (!status)
            status = add_child(reader, list, child);
        if (status)
            return status;
    }
}

/* The key of an entry; `key->text` is its text. */
static int read_key(struct reader *reader, const yaml_event_t *event, unsigned depth,
                    struct fb_node **key)
{
    if (event->type != YAML_SCALAR_EVENT && event->type != YAML_ALIAS_EVENT)
        return fail_at(reader, event, "a key must be a single word");
    return read_node(reader, event, depth + 1, key);
}

static int read_value(struct reader *reader, struct fb_node *map, const struct fb_node *key,
                      unsigned depth)
{
    yaml_event_t event;
    struct fb_node *child;
    int status = next_event(reader, &event);

    if (status)
        return status;
    status = read_node(reader, &event, depth + 1, &child);
    yaml_event_delete(&event);
    if (status)
        return status;
    child->key = key->text;
    child->key_hash = hash_of(key->text);
    child->key_mark = key->mark;
    status = check_double(reader, map, child);
    return status ? status : add_child(reader, map, child);
}

static int read_map(struct reader *reader, struct fb_node *map, unsigned depth)
{
    for (;;) {
        yaml_event_t event;
        struct fb_node *key;
        int status = next_event(reader, &event);

        if (status)
            return status;
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return FOREBAY_OK;
        }
        status = read_key(reader, &event, depth, &key);
        yaml_event_delete(&event);
        if (!status)
            status = read_value(reader, map, key, depth);
        if (status)
            return status;
    }
}

static int read_scalar(struct reader *reader, const yaml_event_t *event, struct fb_node *node)
{
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

    node->text = fb_config_arena_copy(reader->arena, (const char *)event->data.scalar.value,
                               event->data.scalar.length);
    if (!node->text)
        return fb_config_no_memory(reader->error);
    node->quoted = !plain;
    node->kind = plain && is_null(node->text) ? FB_NODE_NULL : FB_NODE_TEXT;
    return FOREBAY_OK;
}

/* The value that `event` begins. The event stays the caller's. */
static int read_node(struct reader *reader, const yaml_event_t *event, unsigned depth,
                     struct fb_node **out)
{
    struct fb_node *node;
    int status = check_event(reader, event, depth);

    if (status)
        return status;
    node = fb_config_arena_take(reader->arena, sizeof(*node));
    if (!node)
        return fb_config_no_memory(reader->error);
    node->mark = mark_of(event->start_mark);
    *out = node;
    switch (event->type) {
    case YAML_SEQUENCE_START_EVENT:
        node->kind = FB_NODE_LIST;
        return read_list(reader, node, depth);
    case YAML_MAPPING_START_EVENT:
        node->kind = FB_NODE_MAP;
        return read_map(reader, node, depth);
    default:
        return read_scalar(reader, event, node);
    }
}

/* Skip to the first event of the next document's content, or to the end of the stream. */
static int next_content(struct reader *reader, yaml_event_t *event)
{
    for (;;) {
        int status = next_event(reader, event);

        if (status)
            return status;
        if (event->type != YAML_STREAM_START_EVENT && event->type != YAML_DOCUMENT_START_EVENT &&
            event->type != YAML_DOCUMENT_END_EVENT)
            return FOREBAY_OK;
        yaml_event_delete(event);
    }
}

static int read_stream(struct reader *reader, struct fb_node **out)
{
    struct fb_node *document = NULL;
    yaml_event_t event;
    int status = next_content(reader, &event);

    if (status)
        return status;
    if (event.type != YAML_STREAM_END_EVENT) {
        status = read_node(reader, &event, 1, &document);
        yaml_event_delete(&event);
        if (status || (status = next_content(reader, &event)))
            return status;
    }
    if (event.type != YAML_STREAM_END_EVENT)
        status = fail_at(reader, &event, "a second document begins here: only one is read");
    yaml_event_delete(&event);
    if (!status)
        *out = document;
    return status;
}

int fb_yaml_read(struct fb_node **out, struct fb_config_arena *arena, const struct fb_origin *origin,
                 const char *text, size_t bytes, forebay_error *error)
{
    struct reader reader = {
        .arena = arena, .origin = origin, .text = text, .bytes = bytes, .error = error
    };
    int status;

    if (bytes > FB_CONFIG_BYTES_MAX)
        return fb_config_fail(error, FOREBAY_BAD_CONFIG, origin, (struct fb_mark){ 1, 1 },
                              "too long: at most 1 MiB of configuration is read");
    if (!yaml_parser_initialize(&reader.parser))
        return fb_config_no_memory(error);
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);
    status = read_stream(&reader, out);
    yaml_parser_delete(&reader.parser);
    return status;
}

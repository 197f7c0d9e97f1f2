/* test_config_errors.c -- what is wrong, hostile or too much, and how it is said. */
#include "config/test_config.h"

/* What is wrong, where it is said to be, and words that must be in the message. */
static const struct bad {
    const char *text, *place, *words;
} bad_texts[] = {
    /* Names. */
    { "memory:\n  buget: 8GiB\n", "2:3",
      "unknown key `memory.buget`; did you mean `memory.budget`?" },
    { "memory: {keep: 10min}", "1:10",
      "`memory.keep` is no longer a setting: a cache ends with its last process" },
    { "memroy: {budget: 1}", "1:1", "unknown section `memroy`; did you mean `memory`?" },
    { "memroy.budget: 1", "1:1", "did you mean `memory.budget`?" },
    { "memroy: 1", "1:1", "did you mean `memory`?" },
    { "budget: 1GiB", "1:1", "did you mean `memory.budget`?" },
    { "order: {budget: 1GiB}", "1:9", "did you mean `memory.budget`?" },
    { "num_worker: 4", "1:1", "did you mean `workers`?" },
    { "wrokers: 4", "1:1", "did you mean `workers`?" },
    { "batch: {zzzzzzzz: 4}", "1:9",
      "unknown key `batch.zzzzzzzz`; known in batch: size, collate, dtype" },
    { "zzzzzzzz: 4", "1:1", "unknown key `zzzzzzzz`; known here: name, source, order" },
    { "zzzzzzzz: {a: 4}", "1:1", "unknown section `zzzzzzzz`; known here: name" },
    { "DATA: {zzzzzzzz: 4}", "1:8", "unknown key `DATA.zzzzzzzz`; known here" },
    { "\"a\\eb\": 1", "1:1", "unknown key `a?b`" },
    { "? [a]\n: 1", "1:3", "a key must be a single word" },
    { "\"\": 1", "1:1", "unknown key ``" },
    { ": 1", "1:1", "this is not YAML" },
    { "<<: {workers: 1}", "1:1", "unknown section `<<`" },
    /* Shapes. */
    { "memory: 8GiB", "1:9",
      "`memory` is a section: expected a mapping of its keys (budget, cache" },
    { "memory: [budget]", "1:9", "`memory` is a section" },
    { "DATA: 5", "1:7", "`DATA` is a section" },
    { "workers: {a: 1}", "1:10",
      "workers: expected a whole number from 0 to 256 (e.g. 8), or auto; found a mapping" },
    { "workers: [1]", "1:10", "found a list" },
    { "source: {fields: blur}", "1:18", "expected a mapping of names to texts such as {blur" },
    { "source: {fields: {blur: [a]}}", "1:25", "found a list" },
    { "source: {fields: {'': a}}", "1:19", "a name is empty" },
    { "source: {path: [a, ~]}", "1:20",
      "expected a text, or a list of texts such as [\"a\", \"b\"]; found nothing" },
    { "source: {path: {a: b}}", "1:16", "found a mapping" },
    { "source.fields.blur: [a]", "1:21", "source.fields.blur: expected a text" },
    { "- a", "1:1", "expected keys and values" },
    { "hello", "1:1", "found a single text" },
    /* Values. */
    { "batch:\n  size: many", "2:9",
      "batch.size: expected a whole number, 1 or more (e.g. 8); found `many`" },
    { "batch: {size: 0}", "1:15", "1 or more" },
    { "batch: {size: -1}", "1:15", "found `-1`" },
    { "batch: {size: 1.5}", "1:15", "found `1.5`" },
    { "batch: {size: \"\"}", "1:15", "found ``" },
    { "batch: {size: auto}", "1:15", "found `auto`" },
    { "order: {seed: 9007199254740993}", "1:15", "0 or more" },
    { "order: {seed: 99999999999999999999999999}", "1:15", "0 or more" },
    { "source: {columns: 0}", "1:19", "1 or more" },
    { "source: {sequence: 0}", "1:20", "1 or more" },
    { "source: {stride: 0}", "1:18", "1 or more" },
    { "prefetch: 0", "1:11", "from 1 to 1024" },
    { "workers: 257", "1:10", "from 0 to 256" },
    { "cpu: {nice: 20}", "1:13", "a whole number from 0 to 19" },
    { "order: {shuffle: maybe}", "1:18", "order.shuffle: expected true or false; found `maybe`" },
    { "memory: {policy: mru}", "1:18", "expected one of auto, fill, next-use, lru; found `mru`" },
    { "source: {kind: nyp}", "1:16", "one of bin, npy" },
    { "memory: {budget: lots}", "1:18",
      "a size such as 12GiB, 50GB or 4096 (bytes), or auto; found `lots`" },
    { "memory: {budget: 12GiBs}", "1:18", "a size such as" },
    { "memory: {budget: off}", "1:18", "a size such as" },
    { "memory: {budget: 0}", "1:18", "a size such as" },
    { "memory: {budget: -1GiB}", "1:18", "a size such as" },
    { "memory: {budget: 99999999999TiB}", "1:18", "a size such as" },
    { "memory: {cache: 50 samples}", "1:17", "or auto or off" },
    { "source: {dtype: f33}", "1:17", "a type of number: u8 u16" },
    { "max_errors: 101%", "1:13",
      "a share from 0% to 100% such as 2.5%, or a whole number such as 100" },
    { "max_errors: -1", "1:13", "a share" },
    { "max_errors: \"%\"", "1:13", "a share" },
    { "max_errors: nan%", "1:13", "a share" },
    { "monitor: {warn: 0.9}", "1:17",
      "monitor.warn: expected a share from 0% to 100% such as 2.5%; found" },
    { "device: {cache: 5000 apples}", "1:17", "5000 samples, or off; found" },
    /* Twice. */
    { "workers: 1\nworkers: 2", "2:1",
      "`workers` stands here twice; the first one is at configuration:1:1" },
    { "memory: {cache: off}\nmemory.cache: off", "2:15",
      "`memory.cache` is set twice; the first time at configuration:1:17" },
    { "num_workers: 1\nworkers: 2", "2:10", "`workers` is set twice" },
    { "memory: {cache: 1}\nUSE_RAM_CACHE: false", "2:16", "`memory.cache` is set twice" },
    { "prefetch_factor: 1\nworkers: 2\nprefetch: 3", "3:11", "`prefetch` is set twice" },
    { "source: {fields: {a: x, a: y}}", "1:25", "`a` stands here twice" },
    { "source: {fields: {a: x}, fields.a: y}", "1:36", "`source.fields.a` is set twice" },
    /* Foreign. */
    { "prefetch_factor: 4", "1:18",
      "prefetch_factor counts batches for each worker, but workers is auto" },
    { "prefetch_factor: 0\nworkers: 1", "1:18",
      "prefetch_factor: expected a whole number, 1 or more" },
    { "prefetch_factor: 9007199254740992\nworkers: 256", "1:18", "is too much" },
    { "CACHE_SIZE_GB: 5GB", "1:16",
      "CACHE_SIZE_GB: expected a number of GiB, e.g. 50; found `5GB`" },
    { "USE_RAM_CACHE: 7", "1:16", "USE_RAM_CACHE: expected true or false" },
    { "batch_size: [1]", "1:13", "batch.size: expected" },
    /* YAML itself. */
    { "a: &x 1", "1:4", "anchors and aliases" },
    { "workers: &x 1\nprefetch: *x", "1:10", "anchors and aliases" },
    { "source: {path: *.npy}", "1:17", "in quotes, e.g. \"*.npy\"" },
    { "source:\n  path: **/a.npy", "2:10", "in quotes" },
    { "source: {path: *npy}", "1:16", "a glob that begins with * in quotes" },
    { "workers: !!int 4", "1:10", "tags (!name) are not used here" },
    { "memory: {budget: 1", "2:1", "this is not YAML" },
    { "a: b: c", "1:5", "this is not YAML" },
    { "\tworkers: 1", "1:1", "this is not YAML" },
    { "name: \"a\\0b\"", "1:7", "NUL" },
    { "name: a\nx\xff: 1", "2:2", "no text in UTF-8" },
    { "---\nname: a\n---\nname: b\n", "4:1", "a second document begins here" },
    { "a: [[[[[[[[[1]]]]]]]]]", "1:11", "nested too deeply: at most 8" },
};

static void what_is_wrong_is_said_with_its_place_and_what_was_expected(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad_texts); i++) {
        const struct bad *bad = &bad_texts[i];
        struct fb_config config = { .name = said };
        forebay_error error = { .message = "" };
        int status = read_both(&config, bad->text, NULL, &error);
        char place[64];

        snprintf(place, sizeof(place), "configuration:%s", bad->place);
        if (status != FOREBAY_BAD_CONFIG || strcmp(error.place, place) != 0 ||
            !strstr(error.message, bad->words) || strncmp(error.message, place, strlen(place)) != 0)
            fail_msg("%s\ngave %d at %s: %s", bad->text, status, error.place, error.message);
        assert_ptr_equal(config.name, said); /* written only on success */
        assert_int_equal(error.status, status);
    }
}

/* The table changes as parts are built: the tests ask it which are not. */
static void a_word_that_is_not_built_says_so(void **state)
{
    const struct fb_key key = {
        .type = CHOICE, .name = "k", .fallback = "a", .choices = "a|bb!|c!"
    };
    const struct fb_origin origin = { "f.yaml", false };
    struct fb_node node;
    forebay_error error;
    int value = 7;

    (void)state;
    fb_node_init_text(&node, "bb");
    node.mark = (struct fb_mark){ 3, 4 };
    assert_int_equal(fb_value_read(&value, &key, &node, NULL, &origin, &error), FOREBAY_NOT_BUILT);
    assert_string_equal(error.message, "f.yaml:3:4: k: bb is not built yet");
    assert_string_equal(error.place, "f.yaml:3:4");
    assert_int_equal(value, 7);
    assert_string_equal(fb_value_expected(&key).text,
                        "one of a, bb (not built yet), c (not built yet)");
    for (size_t i = 0; i < fb_key_count; i++) {
        const char *cursor = fb_keys[i].choices;
        struct fb_word word;

        while (fb_keys[i].type == CHOICE && fb_word_next(&cursor, &word)) {
            struct fb_config config;
            char setting[256];
            int status;

            snprintf(setting, sizeof(setting), "%s=%.*s", fb_keys[i].name, word.length, word.text);
            status = read_both(&config, NULL, setting, &error);
            if (status == FOREBAY_OK)
                fb_config_release(&config);
            assert_true(word.built || status == FOREBAY_NOT_BUILT);
        }
    }
}

static void a_key_that_is_not_built_takes_its_default_and_nothing_else(void **state)
{
    /* For each type a value that is no key's default. */
    static const char *const others[] = {
        [COUNT] = "77", [SIZE] = "77MiB",   [DTYPE] = "i16",    [SHARE] = "77%",
        [TEXT] = "t",   [TEXTS] = "[p, q]", [PAIRS] = "{n: v}", [REALS] = "[1, 77]"
    };

    (void)state;
    for (size_t i = 0; i < fb_key_count; i++) {
        const struct fb_key *key = &fb_keys[i];
        const char *other = others[key->type];
        struct fb_config config;
        forebay_error error;
        char setting[256], message[256];

        if (!(key->flags & LATER))
            continue;
        if (key->type == BOOL)
            other = strcmp(key->fallback, "true") == 0 ? "false" : "true";
        if (key->type == CHOICE)
            other =
                fb_config_word(key->name, strcmp(key->fallback, fb_config_word(key->name, 0)) == 0);
        snprintf(setting, sizeof(setting), "%s=%s", key->name, key->fallback);
        config = must_read(NULL, setting);
        fb_config_release(&config);
        snprintf(setting, sizeof(setting), "%s=%s", key->name, other);
        assert_int_equal(read_both(&config, NULL, setting, &error), FOREBAY_NOT_BUILT);
        snprintf(message, sizeof(message),
                 "--set %s: %s is not built yet: leave it out, or at its "
                 "default, %s",
                 key->name, key->name, key->fallback);
        assert_string_equal(error.message, message);
    }
}

static void a_bad_setting_names_itself(void **state)
{
    static const struct {
        const char *setting, *place, *message;
    } rows[] = {
        { "batch.size=many", "--set batch.size",
          "--set batch.size: expected a whole number, 1 or more (e.g. 8); found `many`" },
        { "memory.buget=1", "--set memory.buget",
          "--set memory.buget: unknown key `memory.buget`; did you mean `memory.budget`?" },
        { "memory={budget: x}", "--set memory",
          "--set memory: memory.budget: expected a size such "
          "as 12GiB, 50GB or 4096 (bytes), or auto; found `x`" },
        { "memory=8GiB", "--set memory",
          "--set memory: `memory` is a section: expected a mapping "
          "of its keys (budget, cache, policy, share, preload, ranks_here)" },
        { "source.path=[a", "", NULL },
        { "source.path=[a, {]", "--set source.path", NULL },
        { "batch.size", "", "--set batch.size: expected key=value, e.g. batch.size=16" },
        { "=4", "", "--set =4: expected key=value, e.g. batch.size=16" },
        { "source.fields.=4", "--set source.fields.", NULL },
        { "workers={a: 1, a: 2}", "--set workers",
          "--set workers: `a` stands here twice; the first one is at --set workers" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fb_config config;
        forebay_error error = { .message = "" };

        /* Without its end it is no list, but a path. */
        if (strcmp(rows[i].setting, "source.path=[a") == 0) {
            config = must_read(NULL, rows[i].setting);
            fb_config_release(&config);
            continue;
        }
        assert_int_not_equal(read_both(&config, NULL, rows[i].setting, &error), FOREBAY_OK);
        assert_string_equal(error.place, rows[i].place);
        if (rows[i].message)
            assert_string_equal(error.message, rows[i].message);
    }
}

static void a_long_path_keeps_its_end_and_its_line(void **state)
{
    struct fb_origin origin = { NULL, false };
    char name[1001], place[320];

    (void)state;
    memset(name, 'x', sizeof(name));
    memcpy(name + 989, "\xffrain.yaml", sizeof("\xffrain.yaml"));
    origin.name = name;
    fb_origin_place(&origin, (struct fb_mark){ SIZE_MAX, SIZE_MAX }, place);
    assert_non_null(strstr(place, "x?rain.yaml:18446744073709551615:18446744073709551615"));
}

static void file_and_text_together_are_refused(void **state)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_config config;
    forebay_error error;

    (void)state;
    options.config_file = "a";
    options.config_text = "b";
    assert_int_equal(fb_config_read(&config, &options, NULL, &error), FOREBAY_BAD_USE);
    options.config_file = NULL;
    options.config_text = NULL;
    options.setting_count = FB_CONFIG_ENTRIES_MAX + 1;
    assert_int_equal(fb_config_read(&config, &options, NULL, &error), FOREBAY_BAD_USE);
}

/* `before`, then `times` x `unit`, then `after`. */
static char *repeat(const char *before, const char *unit, size_t times, const char *after)
{
    size_t length = strlen(unit), used = strlen(before);
    char *text = malloc(used + times * length + strlen(after) + 1);

    assert_non_null(text);
    memcpy(text, before, used);
    for (size_t i = 0; i < times; i++, used += length)
        memcpy(text + used, unit, length);
    memcpy(text + used, after, strlen(after) + 1);
    return text;
}

static void hostile_texts_end_in_an_error(void **state)
{
    static const struct {
        const char *before, *unit;
        size_t times;
        const char *after, *words;
    } rows[] = {
        { "", "[", 500000, "", "" },
        { "", "{a: ", 200000, "", "" },
        { "", "- ", 500000, "", "nested too deeply" },
        { "source: {path: [", "a,", 4097, "]}", "too many entries: at most 4096" },
        { "source: {path: [", "[a,a,a,a,a,a,a,a],", 4000, "]}", "too many values" },
        { "name: \"", "\\e", 500000, "\"\nx: 1", "unknown key `x`" },
        { "", "a", 1000000, ": 1", "" },
        { "\"", "\\xff", 200, "\": 1", "unknown key" },
        { "", "x", 1048577, "", "at most 1 MiB" },
        { "batch: {size: ", "9", 100000, "}", "..." },
        { "", "a.", 500, "b: 1", "unknown key `a.a." },
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char *text = repeat(rows[i].before, rows[i].unit, rows[i].times, rows[i].after);
        struct fb_config config;
        forebay_error error = { .message = "" };

        assert_int_equal(read_both(&config, text, NULL, &error), FOREBAY_BAD_CONFIG);
        assert_non_null(strstr(error.message, rows[i].words));
        assert_true(strlen(error.message) < 700);
        free(text);
    }
}

static void a_list_may_have_all_its_entries(void **state)
{
    char *text = repeat("source: {path: [", "a,", FB_CONFIG_ENTRIES_MAX, "]}");
    struct fb_config config = must_read(text, NULL);

    (void)state;
    assert_int_equal(config.source_path.count, FB_CONFIG_ENTRIES_MAX);
    assert_string_equal(config.source_path.values[FB_CONFIG_ENTRIES_MAX - 1], "a");
    fb_config_release(&config);
    free(text);
}

static void aliases_cannot_multiply(void **state)
{
    struct fb_config config;
    forebay_error error;

    (void)state;
    assert_int_equal(read_both(&config,
                               "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\n"
                               "c: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nsource: {path: *c}\n",
                               NULL, &error),
                     FOREBAY_BAD_CONFIG);
    assert_string_equal(error.place, "configuration:1:4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_said_with_its_place_and_what_was_expected),
        cmocka_unit_test(a_word_that_is_not_built_says_so),
        cmocka_unit_test(a_key_that_is_not_built_takes_its_default_and_nothing_else),
        cmocka_unit_test(a_bad_setting_names_itself),
        cmocka_unit_test(a_long_path_keeps_its_end_and_its_line),
        cmocka_unit_test(file_and_text_together_are_refused),
        cmocka_unit_test(hostile_texts_end_in_an_error),
        cmocka_unit_test(a_list_may_have_all_its_entries),
        cmocka_unit_test(aliases_cannot_multiply),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "config/test_config.h"

#include <unistd.h>

static void nothing_given_means_the_defaults(void **state)
{
    static const char *const empty[] = {
        NULL,   "",   "# only a comment\n",   "---\n...\n",
        "null", "{}", "memory:\nbatch: {}\n", "workers: ~\nbatch: {size: }"
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(empty); i++) {
        struct fb_config config = must_read(empty[i], NULL);

        assert_null(config.name);
        assert_int_equal(config.source_kind, -1);
        assert_int_equal(config.source_path.count, 0);
        assert_int_equal(config.source_columns.value, 4);
        assert_int_equal(config.source_dtype, FOREBAY_F32);
        assert_true(config.order_shuffle);
        assert_int_equal(config.batch_size.value, 1);
        assert_int_equal(config.memory_budget.mode, FB_SIZE_AUTO);
        assert_int_equal(config.device_cache.mode, FB_SIZE_OFF);
        assert_true(config.workers.is_auto);
        assert_string_equal(config.device_kind, "host");
        assert_true(config.max_errors.is_percent);
        assert_true(config.max_errors.value == 100);
        assert_string_equal(config.folder, "");
        for (size_t k = 0; k < fb_key_count; k++)
            assert_false(fb_config_is_set(&config, fb_keys[k].name));
        fb_config_release(&config);
    }
}

static void every_type_is_read_from_block_and_flow_and_json(void **state)
{
    static const char *const texts[] = {
        "name: train\n"
        "source:\n"
        "  kind: npy\n"
        "  path:\n"
        "    - \"a/*.npy\"\n"
        "    - b[0-9].npy\n"
        "  fields:\n"
        "    blur: \"blur/*.npy\"\n"
        "    sharp: sharp\n"
        "  dtype: float16\n"
        "order:\n"
        "  shuffle: no\n"
        "  seed: 9007199254740992\n"
        "memory:\n"
        "  budget: 1.5 GiB\n"
        "  cache: off\n"
        "  policy: next-use\n"
        "max_errors: 2.5%\n",
        "{name: train, source: {kind: npy, path: [\"a/*.npy\", 'b[0-9].npy'],\n"
        " fields: {blur: \"blur/*.npy\", sharp: sharp}, dtype: f16},\n"
        " order: {shuffle: off, seed: 9007199254740992},\n"
        " memory: {budget: 1536MiB, cache: Off, policy: next-use}, max_errors: 2.5%}",
        "{\"name\":\"train\",\"source\":{\"kind\":\"npy\",\"path\":[\"a\\/"
        "*.npy\",\"b[0-9].npy\"],\n"
        "\t\"fields\":{\"blur\":\"blur/*.npy\",\"sharp\":\"sh\\u0061rp\"},\"dtype\":\"float16\"},\n"
        "\"order\":{\"shuffle\":false,\"seed\":9007199254740992},\n"
        "\"memory\":{\"budget\":1610612736,\"cache\":false,\"policy\":\"next-use\"},\n"
        "\"max_errors\":\"2.5%\",\"workers\":null}",
        "name: train\nsource.kind: npy\nsource.path: [a/*.npy, 'b[0-9].npy']\n"
        "source: {fields.blur: blur/*.npy, fields.sharp: sharp, dtype: f16}\n"
        "order.shuffle: false\norder.seed: 9007199254740992\nmax_errors: +2.50%\n"
        "memory.budget: 1.5gib\nmemory: {cache: 0, policy: NEXT-USE}\n",
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct fb_config config = must_read(texts[i], NULL);

        assert_string_equal(config.name, "train");
        assert_int_equal(config.source_kind, FB_KIND_NPY);
        assert_int_equal(config.source_path.count, 2);
        assert_string_equal(config.source_path.values[0], "a/*.npy");
        assert_string_equal(config.source_path.values[1], "b[0-9].npy");
        assert_int_equal(config.source_fields.count, 2);
        assert_string_equal(config.source_fields.keys[0], "blur");
        assert_string_equal(config.source_fields.values[0], "blur/*.npy");
        assert_string_equal(config.source_fields.values[1], "sharp");
        assert_int_equal(config.source_dtype, FOREBAY_F16);
        assert_false(config.order_shuffle);
        assert_true(config.order_seed.value == (uint64_t)1 << 53);
        assert_int_equal(config.memory_budget.mode, FB_SIZE_BYTES);
        assert_true(config.memory_budget.value == (uint64_t)3 << 29);
        assert_int_equal(config.memory_cache.mode, FB_SIZE_OFF);
        assert_int_equal(config.memory_policy, FB_POLICY_NEXT_USE);
        assert_true(config.max_errors.is_percent);
        assert_true(config.max_errors.value == 2.5);
        assert_true(fb_config_is_set(&config, "memory.budget"));
        assert_false(fb_config_is_set(&config, "workers"));
        fb_config_release(&config);
    }
}

/* A text other than the default that is right for the key, and built. */
static const char *example(const struct fb_key *key)
{
    static const char *const texts[] = {
        [COUNT] = "7", [SIZE] = "7MiB",    [DTYPE] = "i16",      [SHARE] = "7%",
        [TEXT] = "t",  [TEXTS] = "[p, q]", [REALS] = "[1, 2.5]", [PAIRS] = "{n: v}"
    };

    if (key->flags & LATER)
        return key->fallback;
    if (key->type == BOOL)
        return strcmp(key->fallback, "true") == 0 ? "false" : "true";
    if (strcmp(key->name, "preset") == 0) /* its first words are not built */
        return "gpu-basic";
    if (key->type == CHOICE)
        return fb_config_word(key->name, strcmp(key->fallback, "null") == 0 ? 1 : 0);
    return texts[key->type];
}

static void every_key_of_the_table_can_be_set_by_file_and_by_setting(void **state)
{
    (void)state;
    for (size_t i = 0; i < fb_key_count; i++) {
        const struct fb_key *key = &fb_keys[i];
        bool is_null = strcmp(example(key), "null") == 0;
        char text[256], setting[256], place[320];
        const char *dot = strchr(key->name, '.');
        struct fb_config config;
        forebay_error error = { .place = "" };

        if (dot)
            snprintf(text, sizeof(text), "%.*s:\n  %s: %s\n", (int)(dot - key->name), key->name,
                     dot + 1, example(key));
        else
            snprintf(text, sizeof(text), "%s: %s\n", key->name, example(key));
        config = must_read(text, NULL);
        assert_int_equal(fb_config_is_set(&config, key->name), !is_null);
        fb_config_place(&config, key->name, &error);
        snprintf(place, sizeof(place), "configuration:%d:%zu", dot ? 2 : 1,
                 strlen(dot ? dot + 1 : key->name) + (dot ? 5 : 3));
        assert_string_equal(error.place, is_null ? key->name : place);
        fb_config_release(&config);

        snprintf(setting, sizeof(setting), "%s=%s", key->name, example(key));
        config = must_read(NULL, setting);
        assert_int_equal(fb_config_is_set(&config, key->name), !is_null);
        error.place[0] = '\0';
        fb_config_place(&config, key->name, &error);
        snprintf(place, sizeof(place), "--set %s", key->name);
        assert_string_equal(error.place, is_null ? key->name : place);
        fb_config_release(&config);
    }
}

static void a_setting_wins_over_the_file_and_the_last_setting_over_the_others(void **state)
{
    static const char *const settings[] = { "batch.size=3", " batch.size = 5 ", "workers=null",
                                            "source.fields.blur=b/*.npy", "memory={budget: 2GB}" };
    forebay_options options = FOREBAY_OPTIONS_INIT;
    struct fb_config config;
    forebay_error error;

    (void)state;
    options.config_text = "batch: {size: 2}\nworkers: 9\nsource: {fields: {blur: x, sharp: y}}";
    options.settings = settings;
    options.setting_count = COUNT_OF(settings);
    assert_int_equal(fb_config_read(&config, &options, NULL, &error), FOREBAY_OK);
    assert_int_equal(config.batch_size.value, 5);
    assert_true(config.workers.is_auto);
    assert_false(fb_config_is_set(&config, "workers"));
    assert_int_equal(config.source_fields.count, 2);
    assert_string_equal(config.source_fields.values[0], "b/*.npy");
    assert_string_equal(config.source_fields.values[1], "y");
    assert_true(config.memory_budget.value == 2000000000u);
    fb_config_release(&config);
}

static void settings_take_globs_as_they_are(void **state)
{
    static const struct {
        const char *setting, *value;
    } rows[] = {
        { "source.path=*.npy", "*.npy" },
        { "source.path=[ab]*.bin", "[ab]*.bin" },
        { "source.path={a,b}/*.bin", "{a,b}/*.bin" },
        { "source.path=a=b: c # d", "a=b: c # d" },
        { "source.path=\"[ab]\"", "[ab]" },
        { "source.path='null'", "null" },
        { "source.path=[\"x y\"]", "x y" },
        { "source.path=\"", "\"" },
        { "source.path=&a", "&a" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fb_config config = must_read(NULL, rows[i].setting);

        assert_int_equal(config.source_path.count, 1);
        assert_string_equal(config.source_path.values[0], rows[i].value);
        fb_config_release(&config);
    }
}

static void sizes_have_modes(void **state)
{
    static const struct {
        const char *setting;
        int mode;
        uint64_t value;
    } rows[] = {
        { "memory.cache=auto", FB_SIZE_AUTO, 0 },
        { "memory.cache=AUTO", FB_SIZE_AUTO, 0 },
        { "memory.cache=off", FB_SIZE_OFF, 0 },
        { "memory.cache=false", FB_SIZE_OFF, 0 },
        { "memory.cache=0", FB_SIZE_OFF, 0 },
        { "memory.cache=50GB", FB_SIZE_BYTES, 50000000000 },
        { "memory.cache=4096", FB_SIZE_BYTES, 4096 },
    };
    const struct fb_key samples = {
        .type = SIZE, .name = "k", .fallback = "off", .choices = "off|samples"
    };
    const struct fb_origin origin = { "here", true };
    struct fb_size size;
    struct fb_node node;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct fb_config config = must_read(NULL, rows[i].setting);

        assert_int_equal(config.memory_cache.mode, rows[i].mode);
        assert_true(config.memory_cache.value == rows[i].value);
        fb_config_release(&config);
    }
    fb_node_init_text(&node, "5000 samples");
    assert_int_equal(fb_value_read(&size, &samples, &node, NULL, &origin, NULL), FOREBAY_OK);
    assert_int_equal(size.mode, FB_SIZE_SAMPLES);
    assert_int_equal(size.value, 5000);
    fb_node_init_text(&node, "samples");
    assert_int_equal(fb_value_read(&size, &samples, &node, NULL, &origin, NULL),
                     FOREBAY_BAD_CONFIG);
}

static void lists_of_numbers_are_read_exactly(void **state)
{
    static const char *const bad[] = { "[1, x]", "nan", "0x10", "1e999", "[[1]]",
                                       "{a: 1}", "[~]", "1,5",  "[\"\"]" };
    const struct fb_key key = { .type = REALS, .name = "k", .fallback = "null", .choices = "" };
    const struct fb_origin origin = { "here", true };
    struct fb_config_arena arena = { NULL };
    struct fb_reals reals;
    struct fb_node *node;

    (void)state;
    assert_int_equal(fb_yaml_read(&node, &arena, &origin, "[0.485, -1e-3, 7]", 17, NULL), 0);
    assert_int_equal(fb_value_read(&reals, &key, node, &arena, &origin, NULL), 0);
    assert_int_equal(reals.count, 3);
    assert_true(reals.values[0] == 0.485 && reals.values[1] == -1e-3 && reals.values[2] == 7);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(fb_yaml_read(&node, &arena, &origin, bad[i], strlen(bad[i]), NULL), 0);
        assert_int_equal(fb_value_read(&reals, &key, node, &arena, &origin, NULL),
                         FOREBAY_BAD_CONFIG);
    }
    fb_config_arena_release(&arena);
}

static void keys_of_the_guides_are_read_as_ours_and_said_once(void **state)
{
    static const char text[] = "DATA:\n  USE_RAM_CACHE: true\n  CACHE_SIZE_GB: 50.0\n"
                               "TRAIN:\n  NUM_WORKERS: 12\n  PREFETCH_FACTOR: 4\n  BATCH_SIZE: 2\n"
                               "data:\n  train:\n    persistent_workers: True\n"
                               "    pin_memory: [whatever]\nshuffle: false\nseed: 7\n"
                               "drop_last: yes\n";
    struct fb_config config = must_read(text, NULL);

    (void)state;
    assert_true(config.memory_cache.value == (uint64_t)50 << 30);
    assert_int_equal(config.workers.value, 12);
    assert_int_equal(config.prefetch.value, 48);
    assert_int_equal(config.batch_size.value, 2);
    assert_false(config.order_shuffle);
    assert_int_equal(config.order_seed.value, 7);
    assert_true(config.order_drop_last);
    assert_true(fb_config_is_set(&config, "prefetch"));
    assert_string_equal(said,
                        "USE_RAM_CACHE: true is as it is anyway: memory.cache says how much\n"
                        "read CACHE_SIZE_GB: 50.0 as memory.cache: 50.0GiB\n"
                        "read NUM_WORKERS: 12 as workers: 12\n"
                        "read BATCH_SIZE: 2 as batch.size: 2\n"
                        "persistent_workers is not needed: workers always stay between epochs\n"
                        "pin_memory is not needed: memory is pinned where forebay itself copies "
                        "to a device\n"
                        "read shuffle: false as order.shuffle: false\n"
                        "read seed: 7 as order.seed: 7\n"
                        "read drop_last: yes as order.drop_last: yes\n"
                        "read PREFETCH_FACTOR: 4 with 12 workers as prefetch: 48\n");
    fb_config_release(&config);
}

static void a_cache_switched_off_stays_off_whatever_its_size(void **state)
{
    static const char *const texts[] = { "DATA: {USE_RAM_CACHE: false, CACHE_SIZE_GB: 50}",
                                         "DATA: {CACHE_SIZE_GB: 50, USE_RAM_CACHE: false}",
                                         "CACHE_SIZE_GB: 0" };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct fb_config config = must_read(texts[i], NULL);

        assert_int_equal(config.memory_cache.mode, FB_SIZE_OFF);
        fb_config_release(&config);
        config = must_read(texts[i], "memory.cache=1GiB");
        assert_true(config.memory_cache.value == (uint64_t)1 << 30);
        fb_config_release(&config);
    }
}

static void a_cache_of_the_device_in_samples_is_read_as_ours(void **state)
{
    struct fb_config config;
    forebay_error error = { .message = "" };
    int status = read_both(&config, "gpu_cache_size: 5000", NULL, &error);

    (void)state;
    /* Until that part is built, reading it right means saying that it is not. */
    if (fb_key_find("device.cache")->flags & LATER) {
        assert_int_equal(status, FOREBAY_NOT_BUILT);
        assert_non_null(strstr(error.message, "1:17: device.cache is not built yet"));
        return;
    }
    assert_int_equal(status, FOREBAY_OK);
    assert_int_equal(config.device_cache.mode, FB_SIZE_SAMPLES);
    assert_int_equal(config.device_cache.value, 5000);
    fb_config_release(&config);
}

static void a_setting_has_its_way_with_a_factor(void **state)
{
    struct fb_config config = must_read("prefetch_factor: 3\nnum_workers: 8", "workers=2");

    (void)state;
    assert_int_equal(config.prefetch.value, 6);
    fb_config_release(&config);
    config = must_read("prefetch_factor: 3", "prefetch=5");
    assert_int_equal(config.prefetch.value, 5);
    fb_config_release(&config);
    config = must_read("prefetch: 5\nnum_workers: 0", "prefetch_factor=3");
    assert_int_equal(config.workers.value, 0);
    assert_int_equal(config.prefetch.value, 3);
    fb_config_release(&config);
    config = must_read("prefetch_factor: null\nnum_workers: ~", NULL);
    assert_true(config.prefetch.is_auto && config.workers.is_auto);
    fb_config_release(&config);
}

static char folder[] = "/tmp/forebay-config-XXXXXX";

static char path[512];

static void write_file(const char *name, const char *text, size_t bytes)
{
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static int read_path(struct fb_config *config, const char *name, forebay_error *error)
{
    forebay_options options = FOREBAY_OPTIONS_INIT;

    options.config_file = name;
    return fb_config_read(config, &options, NULL, error);
}

static void a_file_gives_its_folder_and_its_name_in_places(void **state)
{
    struct fb_config config;
    forebay_error error = { .place = "" };
    char place[600];

    (void)state;
    write_file("train.yaml", "\xef\xbb\xbfname: a\r\nbatch:\r\n  size: 3\r\n", 31);
    assert_int_equal(read_path(&config, path, &error), FOREBAY_OK);
    assert_string_equal(config.folder, folder);
    assert_int_equal(config.batch_size.value, 3);
    fb_config_place(&config, "batch.size", &error);
    snprintf(place, sizeof(place), "%s:3:9", path);
    assert_string_equal(error.place, place);
    fb_config_release(&config);

    write_file("train.yaml", "batch: {sise: 1}", 16);
    assert_int_equal(read_path(&config, path, &error), FOREBAY_BAD_CONFIG);
    snprintf(place, sizeof(place), "%s:1:9", path);
    assert_string_equal(error.place, place);
    snprintf(place, sizeof(place), "%s:1:9: unknown key `batch.sise`; did you mean `batch.size`?",
             path);
    assert_string_equal(error.message, place);
    unlink(path);
}

static void a_file_that_is_not_there_or_too_long_or_a_folder_is_an_error(void **state)
{
    size_t bytes = FB_CONFIG_BYTES_MAX + 1;
    char *text = malloc(bytes);
    struct fb_config config;
    forebay_error error;

    (void)state;
    assert_non_null(text);
    assert_int_equal(read_path(&config, "/nowhere/x.yaml", &error), FOREBAY_MISSING);
    assert_string_equal(error.place, "/nowhere/x.yaml");
    assert_int_equal(read_path(&config, folder, &error), FOREBAY_MISSING);
    memset(text, '\n', bytes);
    write_file("long.yaml", text, bytes);
    assert_int_equal(read_path(&config, path, &error), FOREBAY_BAD_CONFIG);
    assert_non_null(strstr(error.message, "at most 1 MiB"));
    write_file("long.yaml", text, bytes - 1);
    assert_int_equal(read_path(&config, path, &error), FOREBAY_OK);
    fb_config_release(&config);
    unlink(path);
    free(text);
}

static void live_values_are_checked_without_a_configuration(void **state)
{
    struct fb_count count;
    struct fb_size size;
    forebay_error error;

    (void)state;
    assert_int_equal(fb_config_parse_live("workers", "4", &count, &error), FOREBAY_OK);
    assert_int_equal(count.value, 4);
    assert_int_equal(fb_config_parse_live("workers", "auto", &count, &error), FOREBAY_OK);
    assert_true(count.is_auto);
    assert_int_equal(fb_config_parse_live("memory.budget", "8GiB", &size, &error), FOREBAY_OK);
    assert_true(size.value == (uint64_t)8 << 30);

    assert_int_equal(fb_config_parse_live("prefetch", "0", &count, &error), FOREBAY_BAD_CONFIG);
    assert_string_equal(error.place, "prefetch");
    assert_string_equal(error.message, "prefetch: expected a whole number from 1 to 1024 (e.g. "
                                       "8), or auto; found `0`");
    assert_int_equal(fb_config_parse_live("batch.size", "4", &count, &error), FOREBAY_BAD_CONFIG);
    assert_string_equal(error.message,
                        "cannot change `batch.size` while running; these can be set while "
                        "running: memory.budget, workers, prefetch, cpu.share");
    assert_int_equal(fb_config_parse_live("worker", "4", &count, &error), FOREBAY_BAD_CONFIG);
    assert_non_null(strstr(error.message, "unknown key `worker`; did you mean `workers`?"));
    assert_string_equal(error.place, "worker");
}

static void every_word_of_a_choice_is_found_by_its_number(void **state)
{
    (void)state;
    for (size_t i = 0; i < fb_key_count; i++) {
        const char *cursor = fb_keys[i].choices;
        struct fb_word word, again;

        for (int number = 0; fb_keys[i].type == CHOICE && fb_word_next(&cursor, &word); number++) {
            const char *text = fb_config_word(fb_keys[i].name, number);

            assert_int_equal(strlen(text), word.length);
            assert_int_equal(fb_word_find(fb_keys[i].choices, text, &again), number);
        }
    }
    assert_string_equal(fb_config_word("memory.policy", FB_POLICY_LRU), "lru");
    assert_string_equal(fb_config_word("source.kind", FB_KIND_TABLE), "table");
    assert_string_equal(fb_config_word("on_error", FB_ON_ERROR_REPLACE), "replace");
    assert_string_equal(fb_config_word("memory.share", FB_SHARE_OFF), "off");
    assert_string_equal(fb_config_word("source.kind", -1), "null");
    assert_string_equal(fb_config_word("source.kind", 99), "null");
    assert_string_equal(fb_config_word("nothing", 0), "null");
}

static void a_keyword_of_python_stands_in_its_row(void **state)
{
    (void)state;
    assert_string_equal(forebay_key_of("memory"), "memory.budget");
    assert_string_equal(forebay_key_of("batch_size"), "batch.size");
    assert_string_equal(forebay_key_of("name"), "name");
    assert_null(forebay_key_of("budget"));
    for (size_t i = 0; i < fb_key_count; i++) {
        if (fb_keys[i].texts[1])
            assert_ptr_equal(forebay_key_of(fb_keys[i].texts[1]), fb_keys[i].name);
    }
}

static void bounds_and_enums_stand_in_their_row(void **state)
{
    const struct fb_key *workers = fb_key_find("workers"), *warn = fb_key_find("monitor.warn");

    (void)state;
    assert_int_equal(fb_key_limit(workers).minimum, 0);
    assert_int_equal(fb_key_limit(workers).maximum, 256);
    assert_true(fb_key_limit(warn).minimum > fb_key_limit(warn).maximum);
    assert_true(fb_key_limit(fb_key_find("batch.size")).maximum == (uint64_t)1 << 53);
    assert_string_equal(fb_config_word("order.ends", FB_ENDS_DROP), "drop");
    assert_string_equal(fb_config_word("source.crop", FB_SOURCE_CROP_RANDOM), "random");
    assert_string_equal(fb_config_word("monitor.alarm.action", FB_ALARM_STOP), "stop");
}

static void help_tells_of_every_key(void **state)
{
    (void)state;
    for (int markdown = 0; markdown < 2; markdown++) {
        char *text = NULL;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);

        assert_non_null(out);
        fb_config_help(out, markdown);
        fclose(out);
        for (size_t i = 0; i < fb_key_count; i++)
            assert_non_null(strstr(text, fb_keys[i].name));
        assert_null(strchr(text, '!'));
        assert_non_null(strstr(text, markdown ? "| `memory.budget` | `auto` | live | a size such"
                                              : "memory.budget: auto   (live)\n    The ceiling"));
        assert_true(!markdown || strstr(text, "&lt;field&gt;_length"));
        free(text);
    }
}

static void what_was_never_read_can_be_asked_and_released(void **state)
{
    struct fb_config config = { .places = NULL };
    forebay_error error = { .place = "" };

    (void)state;
    assert_false(fb_config_is_set(&config, "workers"));
    fb_config_place(&config, "workers", &error);
    assert_string_equal(error.place, "workers");
    fb_config_place(&config, "prefetch", NULL);
    fb_config_release(&config);
    fb_config_release(&config);
    assert_int_equal(read_both(&config, "a: [", NULL, NULL), FOREBAY_BAD_CONFIG);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_means_the_defaults),
        cmocka_unit_test(every_type_is_read_from_block_and_flow_and_json),
        cmocka_unit_test(every_key_of_the_table_can_be_set_by_file_and_by_setting),
        cmocka_unit_test(a_setting_wins_over_the_file_and_the_last_setting_over_the_others),
        cmocka_unit_test(settings_take_globs_as_they_are),
        cmocka_unit_test(sizes_have_modes),
        cmocka_unit_test(lists_of_numbers_are_read_exactly),
        cmocka_unit_test(keys_of_the_guides_are_read_as_ours_and_said_once),
        cmocka_unit_test(a_cache_switched_off_stays_off_whatever_its_size),
        cmocka_unit_test(a_cache_of_the_device_in_samples_is_read_as_ours),
        cmocka_unit_test(a_setting_has_its_way_with_a_factor),
        cmocka_unit_test(a_file_gives_its_folder_and_its_name_in_places),
        cmocka_unit_test(a_file_that_is_not_there_or_too_long_or_a_folder_is_an_error),
        cmocka_unit_test(live_values_are_checked_without_a_configuration),
        cmocka_unit_test(every_word_of_a_choice_is_found_by_its_number),
        cmocka_unit_test(a_keyword_of_python_stands_in_its_row),
        cmocka_unit_test(bounds_and_enums_stand_in_their_row),
        cmocka_unit_test(help_tells_of_every_key),
        cmocka_unit_test(what_was_never_read_can_be_asked_and_released),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

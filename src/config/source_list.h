/*
 * source_list.h -- the kinds of source, one line each: the line that a new kind adds.
 *
 * X(word, ENUMERATOR): `source.kind: word` is FB_KIND_<ENUMERATOR> and is served by the struct
 * fb_source_<word> of src/source/source_<word>.c (or src/source/<word>/source_<word>.c). The enum,
 * the words of source.kind, the table of sources and the build are made from this list.
 */
#ifndef FB_CONFIG_SOURCE_LIST_H
#define FB_CONFIG_SOURCE_LIST_H
#define FB_SOURCE_KINDS(X) \
    X(bin, BIN) \
    X(npy, NPY) \
    X(windows, WINDOWS) \
    X(images, IMAGES) \
    X(tar, TAR) \
    X(audio, AUDIO) \
    X(table, TABLE)

#define FB_KIND_WORD(word, NAME) W(FB_KIND_##NAME, #word)
#endif

#include "base/dtype.h"

#include <string.h>

static const struct {
    const char *name, *numpy;
    size_t bytes;
} types[] = {
#define FOREBAY_X(name, bytes, text, numpy, dlpack) { text, numpy, bytes },
    FOREBAY_DTYPE_MAP(FOREBAY_X)
#undef FOREBAY_X
};

#define TYPE_COUNT (sizeof(types) / sizeof(types[0]))

/* Other names NumPy knows, with its meaning: np.dtype("float") is float64. */
static const struct {
    const char *name;
    forebay_dtype dtype;
} aliases[] = {
    { "half", FOREBAY_F16 },  { "single", FOREBAY_F32 }, { "double", FOREBAY_F64 },
    { "float", FOREBAY_F64 }, { "int", FOREBAY_I64 },    { "long", FOREBAY_I64 },
};

size_t forebay_dtype_bytes(forebay_dtype dtype)
{
    return (size_t)dtype < TYPE_COUNT ? types[dtype].bytes : 0;
}

const char *forebay_dtype_name(forebay_dtype dtype)
{
    return (size_t)dtype < TYPE_COUNT ? types[dtype].name : "?";
}

bool fb_dtype_parse(const char *text, forebay_dtype *dtype)
{
    for (size_t i = 0; i < TYPE_COUNT; i++) {
        if (strcmp(text, types[i].name) == 0 || strcmp(text, types[i].numpy) == 0) {
            *dtype = (forebay_dtype)i;
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++) {
        if (strcmp(text, aliases[i].name) == 0) {
            *dtype = aliases[i].dtype;
            return true;
        }
    }
    return false;
}

/* config_json.h -- `forebay run --help-config --json`: the schema as one object. */
#ifndef CLI_CONFIG_JSON_H
#define CLI_CONFIG_JSON_H
#include <jansson.h>

json_t *config_json(void);
#endif

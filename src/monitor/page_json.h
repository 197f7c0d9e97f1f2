/* page_json.h -- a page as one JSON object: for `forebay top --json` and the log. */
#ifndef FB_MONITOR_PAGE_JSON_H
#define FB_MONITOR_PAGE_JSON_H
#include <jansson.h>

#include "monitor/page.h"

/* Unknown is null. NULL if there is no memory for it. */
json_t *fb_page_json(const struct fb_page *page);
#endif

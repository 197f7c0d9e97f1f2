/* prometheus.h -- figures of host and loaders over HTTP, as Prometheus reads them. */
#ifndef CLI_PROMETHEUS_H
#define CLI_PROMETHEUS_H
#include "monitor/sampler.h"

struct prometheus;

/* `where`: "9090" (on 127.0.0.1) or "ADDRESS:9090". */
int prometheus_start(struct prometheus **out, const char *where, forebay_error *error);
void prometheus_stop(struct prometheus *prometheus);
/* What is answered from now on. */
void prometheus_tell(struct prometheus *prometheus, const struct fb_sample *sample);
/* The text itself; the caller frees it. */
char *prometheus_text(const struct fb_sample *sample);
/* Once a second: drop clients that take more than 5 s for a request. */
void prometheus_tick(struct prometheus *prometheus);
#endif

/*
 * date.h -- ISO 8601 dates and times as they stand in tables.
 *
 *     2024-02-29                          a date
 *     2024-02-29 13:45[:30[.123456789]]   a time; T instead of the space; Z or +hh[[:]mm] after it
 *
 * Years are 0001 to 9999 of the Gregorian calendar. A time without a zone is UTC. Spaces around it
 * are passed over.
 */
#ifndef FB_DECODE_DATE_H
#define FB_DECODE_DATE_H
#include "decode/number.h"

/* Days since 1970-01-01; NONE if the text is no date. */
enum fb_number fb_date_days(const char *at, const char *end, int64_t *days);
/* Nanoseconds since 1970-01-01 00:00 UTC, of a time or of a date (its midnight). RANGE: it is one,
 * but not between 1677-09-21 and 2262-04-11, which are all that 64 bits of nanoseconds hold. */
enum fb_number fb_date_ns(const char *at, const char *end, int64_t *ns);
#endif

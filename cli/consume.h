/*
 * consume.h -- the consumer of `forebay run`: reads enough of every batch that no page of it can be
 * missing, and sums what it read (pack/checksum.h), so that the data can be compared.
 */
#ifndef CLI_CONSUME_H
#define CLI_CONSUME_H
#include "forebay.h"

/* The sum over all data fields of all samples of the batch. `index`, <field>_length and
 * <field>_offsets are not data; padding is left out, so that every collate gives the same sum. A
 * batch on a device is copied back first, into memory of our own. */
int consume_batch(uint64_t *sum, const forebay_batch *batch, forebay_error *error);
#endif

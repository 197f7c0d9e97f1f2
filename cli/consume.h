/*
 * consume.h -- the consumer of `forebay run`: reads enough of every batch that no page of it can be
 * missing, and sums what it read (pack/checksum.h), so that the data can be compared.
 */
#ifndef CLI_CONSUME_H
#define CLI_CONSUME_H
#include "forebay.h"

/* The sum over all data fields of all samples of the batch. `index`, <field>_length and
 * <field>_offsets are not data; padding is left out, so that every collate gives the same sum.
 * Only batches in host memory can be read: others give 0. */
uint64_t consume_batch(const forebay_batch *batch);
#endif

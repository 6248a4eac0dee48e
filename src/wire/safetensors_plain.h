/* Headers of safetensors bodies as nearly all of them are: names, dtypes and notes of printable
 * ASCII without escapes, whole numbers of a common size, `__metadata__` first if there is one. They
 * are read in one pass that allocates nothing, where jansson takes some thirty allocations.
 *
 * What is anything else, valid or not, is left to jansson and to the checks behind it: a header
 * read here means what it means there. Read next: safetensors_in.c. */
#ifndef BLASD_WIRE_SAFETENSORS_PLAIN_H
#define BLASD_WIRE_SAFETENSORS_PLAIN_H

#include "wire/landing.h"

#define SAFETENSORS_NOTES 8
#define SAFETENSORS_METADATA "__metadata__"

struct safetensors_tensor {
    const char *name, *dtype; /* in the header; they end with a zero */
    int rank;
    int64_t shape[BLASD_MAX_RANK];
    int64_t begin, end; /* the two data_offsets, each 0 or more */
};

struct safetensors_plain {
    int notes, tensors;
    struct {
        const char *name, *text; /* as above */
    } note[SAFETENSORS_NOTES];   /* of `__metadata__` */
    struct safetensors_tensor tensor[BLASD_ARRIVALS_MAX];
};

/* Reads the `len` bytes at `header`. True: *ret is filled, what it borrows lies in the header, and
 * closing quotes there have become zeros. False: the header is as it was, and says nothing yet. */
bool safetensors_plain_read(char *header, size_t len, struct safetensors_plain *ret);

#endif

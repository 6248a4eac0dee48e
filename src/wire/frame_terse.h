/* The terse text records that the queue's functions write for jobs which no worker ended. */
#ifndef BLASD_WIRE_FRAME_TERSE_H
#define BLASD_WIRE_FRAME_TERSE_H

#include "core/record.h"

/* Whether the bytes begin as a terse record does. */
bool frame_is_terse(const void *bytes, size_t len);
/* Reads one into `record`, which is empty (zeroed, every output absent). */
int frame_terse_decode(const void *bytes, size_t len, struct blasd_record *record,
                       struct blasd_err *err);

#endif

/* An inference request while it is read. Private to oip_in.c and oip_request.c. */
#ifndef BLASD_OIP_PARTS_H
#define BLASD_OIP_PARTS_H

#include "oip/oip.h"
#include "wire/json_text.h"

struct oip_reader {
    struct blasd_body_reader base;
    const struct blasd_body *body;
    struct blasd_oip *oip;
    struct blasd_buf text; /* the JSON, zeros behind it once it is whole */
    bool begun;            /* it was read: what comes now are tensors */
    int count, current;    /* tensors that follow; the one that comes */
    struct blasd_tensor_writer writers[BLASD_MAX_INPUTS];
};
_Static_assert(sizeof(struct oip_reader) <= BLASD_READER_ROOM, "raise BLASD_READER_ROOM");

/* The JSON is whole: reads it, and begins the writers of tensors that follow. */
int oip_read_request(struct oip_reader *reader, struct blasd_err *err);

#endif

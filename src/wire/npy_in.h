/* One .npy file that comes in pieces. */
#ifndef BLASD_WIRE_NPY_IN_H
#define BLASD_WIRE_NPY_IN_H

#include "base/buf.h"
#include "wire/body_reader.h"

#define BLASD_NPY_MAGIC "\x93NUMPY"
#define BLASD_NPY_MAGIC_LEN 6

struct blasd_npy_in {
    const struct blasd_body *body; /* borrowed */
    struct blasd_named_input *to;  /* borrowed */
    char field[64];
    struct blasd_buf header; /* magic, version, length and header */
    size_t header_len;       /* all of that; 0: not known yet */
    bool has_header;         /* the header was read */
    struct blasd_tensor_writer writer;
};

/* `to` is borrowed, and named already. Release with blasd_npy_release. */
void blasd_npy_begin(struct blasd_npy_in *npy, const struct blasd_body *body,
                     struct blasd_named_input *to);
int blasd_npy_feed(struct blasd_npy_in *npy, const char *bytes, size_t len, struct blasd_err *err);
/* The file has ended. */
int blasd_npy_finish(struct blasd_npy_in *npy, struct blasd_err *err);
void blasd_npy_release(struct blasd_npy_in *npy);

#endif

/* The header of a .npy file: the text of a Python dict. Read next: npy_in.c. */
#ifndef BLASD_WIRE_NPY_HEADER_H
#define BLASD_WIRE_NPY_HEADER_H

#include "core/tensor.h"

struct blasd_err;

/* Reads "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }" into `tensor`; *big_endian
 * tells the byte order of the elements. `field` names the tensor in errors: malformed_npy, or
 * unsupported_dtype for what is no plain array of numbers. */
int blasd_npy_header(const char *text, size_t len, const char *field, struct blasd_tensor *tensor,
                     bool *big_endian, struct blasd_err *err);

#endif

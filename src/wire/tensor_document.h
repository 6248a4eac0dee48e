/* A kept tensor on its way out: its document, and its bytes in any format. */
#ifndef BLASD_WIRE_TENSOR_DOCUMENT_H
#define BLASD_WIRE_TENSOR_DOCUMENT_H

#include "wire/answer.h"

/* Appends the document as JSON; 0, or -1 where the cap or memory does not suffice. */
int blasd_tensor_document(const struct blasd_stored_tensor *tensor, struct blasd_buf *out);
/* Appends a name as a member of an object, with its colon; as above. */
int blasd_tensor_name(const char *name, struct blasd_buf *out);
/* Whether the format can hold it: a .npy file no bfloat16, all others no Fortran order. */
bool blasd_tensor_answer_possible(const struct blasd_tensor *tensor, enum blasd_format format);
/* Its bytes, in safetensors under the name `name`. As blasd_answer_new. */
struct blasd_answer *blasd_tensor_answer_new(const struct blasd_tensor *tensor, const char *name,
                                             const void *bytes, enum blasd_format format);

#endif

/* The job document and the problem object, for those who put them into something larger.
 * Read next: document.c, answer.c. */
#ifndef BLASD_WIRE_DOCUMENT_H
#define BLASD_WIRE_DOCUMENT_H

#include "core/record.h"
#include "wire/json_out.h"

/* A place in a document where the elements of an output are to be put in. */
struct document_cut {
    int output;
    size_t at; /* bytes of the document before it */
};

/* What of the outputs' data goes into a document. Zeroed: nothing. */
struct document_data {
    const void *payload;       /* borrowed; where it is not NULL, outputs of at most */
    uint64_t most;             /* this many elements are written with their data */
    struct document_cut *cuts; /* or, where this is not NULL, every output gets a cut: room for */
    int cut_count;             /* BLASD_MAX_OUTPUTS of them; set */
    bool blobs;                /* outputs say in which blob they lie */
};

/* Writes the job document. */
void document_job(struct json_out *out, const struct blasd_record *record,
                  struct document_data *data);
/* Writes `"cost":{…}` of what was or would be used; null where it has no price. */
void document_cost(struct json_out *out, const struct blasd_prices *prices,
                   const struct blasd_usage *usage);
/* Writes `"dtype":…,"shape":…` of a tensor, as stands inside an object. */
void document_tensor(struct json_out *out, const struct blasd_tensor *tensor);
/* Writes `"NAME":{"dtype":…,"shape":…,"bytes":…}` of what is planned to come out. */
void document_planned(struct json_out *out, const char *name, const struct blasd_tensor *tensor);
/* Writes a shape as a list. */
void document_shape(struct json_out *out, const struct blasd_tensor *tensor);
/* Writes the elements at `bytes` as nested lists. */
void document_elements(struct json_out *out, const struct blasd_tensor *tensor, const void *bytes);
/* Ends a document in a buffer that was `before` bytes long: whole, and 0, or -1 and as if it had
 * not begun. */
int document_end(struct json_out *out, size_t before);
/* The descriptor's row of output number `i` of the record, or NULL where the record has no such
 * output. */
/* The code of a warning as users know it. */
const char *document_warning_code(const struct blasd_warning *warning);
const struct blasd_port *document_output(const struct blasd_record *record, int i);

#endif

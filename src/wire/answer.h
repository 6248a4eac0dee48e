/* The way out: records become JSON, safetensors and .npy; errors become problem documents.
 * Pure: the caller gives the tensors' bytes and sends what comes out. */
#ifndef BLASD_WIRE_ANSWER_H
#define BLASD_WIRE_ANSWER_H

#include "base/buf.h"
#include "core/kernel.h"
#include "core/record.h"

#include <sys/types.h>

enum blasd_format { BLASD_FORMAT_JSON, BLASD_FORMAT_SAFETENSORS, BLASD_FORMAT_NPY };
#define BLASD_FORMATS 3

/* The Content-Type of a format; static text. */
const char *blasd_format_type(enum blasd_format format);

/* What the Accept headers of a request say of each format. Zeroed: there was none. */
struct blasd_accept {
    bool given;
    struct {
        int fit; /* how exactly a range names the format; 0: none does */
        int q;   /* thousandths */
    } of[BLASD_FORMATS];
};
/* Reads one Accept header, with q-values and wildcards; several are one list (RFC 9110, 5.2). */
void blasd_accept_add(struct blasd_accept *accept, const char *value);
/* The format that suits best; `allow_npy` where one output is asked for. JSON where the client has
 * no preference. False where nothing fits. */
bool blasd_accept_choose(const struct blasd_accept *accept, bool allow_npy, enum blasd_format *ret);
/* Where the answer cannot be had as *format: strikes that, and chooses among the others. */
bool blasd_accept_other(struct blasd_accept *accept, enum blasd_format *format);

/* These append to `out` and return 0, or -1 where the cap or memory does not suffice; `out` is then
 * as it was.
 *
 * The job document as JSON. `payload` is the record's payload or NULL; outputs of at most
 * `inline_elements` elements carry `data` where a payload is there; with `blobs` those that lie in
 * a blob say in which, and where. */
int blasd_job_document(const struct blasd_record *record, const void *payload,
                       uint64_t inline_elements, bool blobs, struct blasd_buf *out);
/* One problem document (RFC 9457): type, title, status, code, detail, field, retry, advice. */
int blasd_problem_document(const struct blasd_err *problem, struct blasd_buf *out);
/* GET /ops: every operation, or the one given, from its descriptor. */
int blasd_ops_document(const struct blasd_op *only, struct blasd_buf *out);

/* Tensors on their way out, in any format, read from the front in pieces: nothing is built whole,
 * however large it is. */
struct blasd_answer;

/* The position of an output by its name; -1: the record has none such. */
int blasd_answer_output(const struct blasd_record *record, const char *name);
/* Whether the answer can be given: the record has the output at that position, and the format its
 * dtype (bfloat16 does not exist in .npy; all outputs at once neither). False means 406, or 404
 * where the output is not there. Goes well with blasd_format_accepted's `allow_npy`. */
bool blasd_answer_possible(const struct blasd_record *record, int output, enum blasd_format format);
/* All outputs (`output` -1: JSON gives the job document with every `data`, safetensors the job
 * document in __metadata__) or the one at position `output`. `payload` is borrowed until the answer
 * is freed, the record only during the call. New: free with blasd_answer_free. NULL where memory
 * has run out, the answer is not possible, or `payload` is NULL and an output is not empty. */
struct blasd_answer *blasd_answer_new(const struct blasd_record *record, const void *payload,
                                      int output, enum blasd_format format);
/* Bytes in all, or -1 where only writing them out tells (JSON). */
int64_t blasd_answer_size(const struct blasd_answer *answer);
/* Before it is read: leaves only the `len` bytes from `from` on, which are in it; of an answer
 * whose size is known. */
void blasd_answer_cut(struct blasd_answer *answer, uint64_t from, uint64_t len);
/* Copies the next bytes into `out` and fills it (`max` bytes) unless the answer ends; 0 at the end.
 */
size_t blasd_answer_read(struct blasd_answer *answer, char *out, size_t max);
void blasd_answer_free(struct blasd_answer *answer); /* takes NULL */

/* Making an answer in a format of one's own: texts and tensors in turn. `text_most`: bytes that the
 * text may have. NULL where memory has run out. */
struct blasd_answer *blasd_answer_begin(int parts_most, size_t text_most);
struct blasd_buf *blasd_answer_text(struct blasd_answer *answer); /* borrowed; write into it */
/* Puts an output behind the text as far as `text_end`, as it is or as lists. `payload` is borrowed
 * until the answer is freed. */
void blasd_answer_add(struct blasd_answer *answer, const struct blasd_output *output,
                      const void *payload, size_t text_end, bool json);
/* All is there; false where an output that is not empty has no bytes. */
bool blasd_answer_end(struct blasd_answer *answer);

#endif

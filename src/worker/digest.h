/* Digests of outputs, for jobs that ask for them: the SHA-256 of one line, "DTYPE [N, N]" and a
 * line feed, and the elements behind it, row-major and little-endian. */
#ifndef BLASD_WORKER_DIGEST_H
#define BLASD_WORKER_DIGEST_H

#include "worker/map_io.h"

void blasd_digest_tensor(const struct blasd_tensor *tensor, uint8_t digest[BLASD_OUTPUT_DIGEST]);
/* Fills io->digests while the outputs lie where they were computed; nothing if the job does not ask
 * for it. Errors: out_of_memory. */
int blasd_digest_outputs(const struct blasd_task *task, struct blasd_io *io, struct blasd_err *err);

#endif

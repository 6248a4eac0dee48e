/* Digests of outputs, by libsodium. */
#include "worker/digest.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(crypto_hash_sha256_BYTES == BLASD_OUTPUT_DIGEST, "a digest has its room");

void blasd_digest_tensor(const struct blasd_tensor *tensor, uint8_t digest[BLASD_OUTPUT_DIGEST]) {
    crypto_hash_sha256_state state;
    char line[BLASD_NAME_MAX + BLASD_MAX_RANK * 24];
    size_t len = (size_t)snprintf(line, sizeof line, "%s [", blasd_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->rank; i++)
        len += (size_t)snprintf(line + len, sizeof line - len, "%s%" PRId64, i == 0 ? "" : ", ",
                                tensor->shape[i]);
    len += (size_t)snprintf(line + len, sizeof line - len, "]\n");
    crypto_hash_sha256_init(&state);
    crypto_hash_sha256_update(&state, (const unsigned char *)line, len);
    if (blasd_tensor_bytes(tensor) > 0)
        crypto_hash_sha256_update(&state, tensor->data, blasd_tensor_bytes(tensor));
    crypto_hash_sha256_final(&state, digest);
}

int blasd_digest_outputs(const struct blasd_task *task, struct blasd_io *io,
                         struct blasd_err *err) {
    const struct blasd_job *job = task->job;
    if (job->extras == NULL || !job->extras->digest) return 0;
    io->digests = calloc(BLASD_MAX_OUTPUTS, sizeof *io->digests);
    if (io->digests == NULL) return blasd_no_memory(err);
    for (int i = 0; job->op->outputs[i].name != NULL; i++)
        if (task->plan->outputs[i].rank >= 0)
            blasd_digest_tensor(&task->outputs[i], io->digests[i]);
    return 0;
}

/* Job ids. An id is text that is safe in a URL, a file name and a Redis key:
 *
 *     s 692fa1b0 0123456789abcdef0123 0001 89abcdef
 *     | |        |                    |    its signature, 32 bits
 *     | |        |                    its number in the batch entry, of a lone job 0
 *     | |        the batch entry: 80 random bits, which jobs that went to the queue together share
 *     | the bucket: the second of creation, which says where its record lies
 *     the kind: `s` for a job a client waits for, `a` for one to be fetched later, `t` for a tensor
 *
 * The signature follows from all before it by a key of the tenant. So a deployment knows an id that
 * it gave this tenant from one that was made up, or another's, long after the job's record is gone;
 * of 2^32 of those it takes one for its own. No client guesses another tenant's job: 112 bits are
 * not known of it.
 * All before the last part is the name of the job's batch entry (queue/functions/contract.lua).
 * Read next: limits.h. */
#ifndef BLASD_BASE_ID_H
#define BLASD_BASE_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BLASD_ID_LEN 41
#define BLASD_ID_ENTRY 29 /* characters of it that are the batch entry's name */

enum blasd_id_kind { BLASD_ID_SYNC = 's', BLASD_ID_ASYNC = 'a', BLASD_ID_TENSOR = 't' };

/* Makes a new id for a job created at `wall_us` (microseconds since 1970). */
void blasd_id_new(enum blasd_id_kind kind, int64_t wall_us, char id[BLASD_ID_LEN + 1]);
struct blasd_id_key {
    uint64_t word[2];
};
/* Fills in the number, which no other id with these first characters has, and the signature. */
void blasd_id_sign(char id[BLASD_ID_LEN + 1], const struct blasd_id_key *key, uint16_t number);
/* A key that follows from another and a name of up to 32 characters, and tells nothing of either.
 */
struct blasd_id_key blasd_id_key_for(const struct blasd_id_key *key, const char *name);
bool blasd_id_signed(const char *id, const struct blasd_id_key *key);
/* Whether `text` has the form of a job's id, and of a tensor's. */
bool blasd_id_valid(const char *text);
bool blasd_id_tensor_valid(const char *text);

/* Writes `len` random hexadecimal digits, an even number, and a zero behind them. */
void blasd_random_hex(char *out, size_t len);

#endif

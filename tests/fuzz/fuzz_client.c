/* What a service, or whoever answers in its place, sends to the C client: JSON and safetensors
 * answers, and problems. */
#include "clients/c/internal.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static unsigned char sum;

static void look(struct blasd_reply *reply) {
    struct blasd_problem problem = {0};
    const char *texts[3];
    texts[0] = blasd_reply_id(reply);
    texts[1] = blasd_reply_state(reply);
    texts[2] = blasd_reply_document(reply);
    for (int i = 0; i < 3; i++)
        if (texts[i] != NULL) sum ^= (unsigned char)strlen(texts[i]);
    blasd_reply_ended(reply);
    blasd_reply_progress(reply);
    blasd_reply_failed(reply, &problem);
    for (int i = 0; i < blasd_reply_array_count(reply) && i < 100; i++) {
        const struct blasd_array *array = blasd_reply_array_at(reply, i);
        int64_t size = array == NULL ? 0 : blasd_array_bytes(array);
        if (array == NULL || array->data == NULL) continue;
        for (int64_t at = 0; at < size; at++) sum ^= ((const unsigned char *)array->data)[at];
    }
    blasd_reply_free(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    for (int form = 0; form < 2; form++) {
        struct blasd_problem problem = {0};
        unsigned char *body = malloc(len + 1);
        struct blasd_reply *reply;
        if (body == NULL) return 0;
        if (len > 0) memcpy(body, bytes, len);
        body[len] = '\0';
        reply = blasd_reply_parse(body, len, form == 1, &problem);
        if (reply != NULL) look(reply);
        blasd_problem_parse(&problem, 422, bytes, len);
    }
    return 0;
}

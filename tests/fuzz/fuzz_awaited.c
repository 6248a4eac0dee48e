/* What a worker is given of a job that waited for others, from hostile bytes: its frame and
 * payload, then records. An input that is found lies inside what came. */
#include "worker/awaited.h"

#include "wire/frame.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void require(bool holds) {
    if (!holds) abort();
}

static void look(const struct blasd_item *item, int i) {
    const struct blasd_input *input = &item->job.inputs[i];
    const unsigned char *begin = item->claim->frame, *end = begin + item->claim->frame_len;
    const void *at = NULL;
    struct blasd_view *hold = NULL;
    struct blasd_err err = {0};
    uint64_t extent = blasd_reference_extent(&input->reference, &input->tensor);
    if (blasd_awaited_find(NULL, item, i, &at, &hold, &err) != 0) return;
    require((const unsigned char *)at >= begin && (const unsigned char *)at <= end);
    require(extent <= (size_t)(end - (const unsigned char *)at));
}

/* Whether the record lies in a segment, which is not here. */
static bool elsewhere(const struct blasd_claim *claim) {
    const char *at = claim->frame;
    for (size_t i = 0; i + 16 <= claim->frame_len; i++)
        if (memcmp(at + i, "BLRF", 4) == 0 && at[i + 15] == 2) return true;
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
    struct blasd_claim claim = {.frame_len = len};
    static struct blasd_item item;
    void *copy = malloc(len + 1);
    if (copy == NULL) return 0;
    if (len > 0) memcpy(copy, bytes, len);
    copy = realloc(copy, len == 0 ? 1 : len); /* so that the sanitizer sees a look beyond it */
    claim.frame = copy;
    memset(&item, 0, sizeof item);
    if (copy != NULL && !elsewhere(&claim)) blasd_item_read(&item, &claim);
    if (item.job.op != NULL && item.err.code == BLASD_OK)
        for (int i = 0; item.job.op->inputs[i].name != NULL; i++)
            if (item.job.inputs[i].source.kind == BLASD_SOURCE_AWAITED) look(&item, i);
    free(copy);
    return 0;
}

/* Names of states. */
#include "core/record.h"

#include <string.h>

const char *const blasd_state_names[BLASD_STATE_COUNT] = {"queued", "running",   "succeeded",
                                                          "failed", "cancelled", "expired"};

bool blasd_state_final(enum blasd_state state) {
    return state >= BLASD_SUCCEEDED;
}

bool blasd_state_find(const char *name, enum blasd_state *ret) {
    for (int state = 0; state < BLASD_STATE_COUNT; state++) {
        if (strcmp(blasd_state_names[state], name) != 0) continue;
        *ret = (enum blasd_state)state;
        return true;
    }
    return false;
}

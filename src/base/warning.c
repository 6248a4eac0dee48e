/* The table of warnings. */
#include "base/warning.h"

#include <stddef.h>

static const struct blasd_warning_info table[] = {
#define X(number, name, title, advice) {BLASD_W_##name, #name, title, advice},
    BLASD_WARNINGS(X)
#undef X
};

const struct blasd_warning_info *blasd_warning_row(int i) {
    return i >= 0 && i < (int)(sizeof table / sizeof *table) ? &table[i] : NULL;
}

const struct blasd_warning_info *blasd_warning_find(int number) {
    const struct blasd_warning_info *row;
    for (int i = 0; (row = blasd_warning_row(i)) != NULL; i++)
        if ((int)row->code == number) return row;
    return NULL;
}

/* The options of `blasd keys add`, which say what a key may do. Read next: cmd_keys.c. */
#ifndef BLASD_MAIN_KEY_OPTIONS_H
#define BLASD_MAIN_KEY_OPTIONS_H

#include "auth/key.h"

#include <getopt.h>

/* For getopt_long, ended by a row without a name; each option's number is what
 * key_option_take takes. `--file` is among them, as 'f', and not taken by it. */
extern const struct option key_options[];
extern const char key_options_usage[];
/* 0, or invalid_field with a message that names the option. */
int key_option_take(struct blasd_auth_key *key, int option, const char *value,
                    struct blasd_err *err);

#endif

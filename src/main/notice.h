/* Word that this machine will be taken away, as clouds give it of those they sell cheaply. */
#ifndef BLASD_MAIN_NOTICE_H
#define BLASD_MAIN_NOTICE_H

#include "base/err.h"

/* Borrowed; NULL: none. */
struct notice_options {
    const char *file; /* --notice-file: it is there */
    const char *url;  /* --notice-url: a GET of it is answered with 200 */
    const char *text; /* --notice-text: and with this in the answer */
};

enum { OPTION_NOTICE_FILE = 400, OPTION_NOTICE_URL, OPTION_NOTICE_TEXT };
/* clang-format off */
#define NOTICE_OPTIONS                                                                             \
    {"notice-file", required_argument, NULL, OPTION_NOTICE_FILE},                                  \
    {"notice-url", required_argument, NULL, OPTION_NOTICE_URL},                                    \
    {"notice-text", required_argument, NULL, OPTION_NOTICE_TEXT}
/* clang-format on */
#define NOTICE_USAGE                                                                               \
    "  --notice-file PATH     ends as on SIGTERM once this file is there: word that the machine\n" \
    "                         goes; see docs/deploying.md\n"                                       \
    "  --notice-url URL       the same once a GET of it, made each second, is answered with "      \
    "200,\n"                                                                                       \
    "  --notice-text TEXT     and with this text in the answer\n"

/* 0; 1: the option is none of these. */
int notice_take(struct notice_options *options, int option, const char *value);
/* 0, or -1 after a message. */
int notice_check(const struct notice_options *options);
/* From now on the calling thread, which is to catch it, gets SIGTERM on the word, once. Where there
 * is nothing to look at it does nothing. The thread that looks has the rights that the caller has
 * by now, and lasts as long as the process. */
int notice_start(const struct notice_options *options, struct blasd_err *err);

#endif

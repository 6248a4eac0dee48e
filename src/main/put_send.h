/* Outputs put to URLs as something to be sent. Read next: put_send.c. */
#ifndef BLASD_MAIN_PUT_SEND_H
#define BLASD_MAIN_PUT_SEND_H

#include "base/limits.h"
#include "main/lane_rounds.h"
#include "queue/job_outputs.h"

struct put_options {
    struct blasd_job_outputs *outputs; /* borrowed, as all here */
    const struct blasd_limits *limits;
};

/* `options` is borrowed by what it returns. */
struct lane_sender put_sender(const struct put_options *options);

#endif

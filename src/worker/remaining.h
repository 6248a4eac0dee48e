/* How long a batch that runs will yet take. */
#ifndef BLASD_WORKER_REMAINING_H
#define BLASD_WORKER_REMAINING_H

/* Seconds to the end, from the estimate of the whole, the time that it has run, and its progress, 0
 * to 1. Finite and not negative, whatever these are; 0 where the progress is 1. */
double blasd_remaining_s(double estimate_s, double elapsed_s, double progress);

#endif

/* The estimate is all there is to go by at first; what has been done tells more from then on, and
 * all once it is a tenth: a smaller part may be what every job begins with, and to go by it alone
 * would let a minute look like an hour. */
#include "worker/remaining.h"

#include <math.h>

#define TELLS_ALL 0.1
#define GUESS_LEAST 0.1 /* of the longer one of estimate and time so far: no guess is better */
#define LONGEST_S 1e8   /* three years */

/* Of what is no time, none. */
static double time_of(double s) {
    return s > 0 ? fmin(s, LONGEST_S) : 0;
}

/* Without any progress: what is left of the estimate. Once that is over nothing is known but that
 * it was too little, and the longer the job runs, the longer it will. */
static double guess(double estimate_s, double elapsed_s) {
    return fmax(fabs(estimate_s - elapsed_s), GUESS_LEAST * fmax(estimate_s, elapsed_s));
}

double blasd_remaining_s(double estimate_s, double elapsed_s, double progress) {
    double done = progress > 0 ? fmin(progress, 1) : 0, told = fmin(done / TELLS_ALL, 1);
    double first_s = guess(time_of(estimate_s), time_of(elapsed_s));
    /* the pace, elapsed / done, times what it tells: squared, so that with little progress this is
     * at most as many times the time so far as there are tenths */
    double pace_s = told * fmin(1 / TELLS_ALL, 1 / done) * time_of(elapsed_s);
    return (1 - told * told) * first_s + pace_s * (1 - done);
}

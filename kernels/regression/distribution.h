/* Tails and quantiles of the distributions that regression's statistics follow, to a relative error
 * of about 1e-13, however far out. Pure functions. */
#ifndef BLASD_REGRESSION_DISTRIBUTION_H
#define BLASD_REGRESSION_DISTRIBUTION_H

/* P(|T| > |t|) for Student's t with `df` > 0 degrees of freedom (infinite: the normal). */
double blasd_student_tails(double t, double df);
/* The t >= 0 for which P(|T| > t) is `tails`, 0 < tails < 1. */
double blasd_student_critical(double tails, double df);
/* P(F > f) for Fisher's F with d1 and d2 degrees of freedom, both > 0. */
double blasd_fisher_tail(double f, double d1, double d2);

#endif

/* The commands of the one executable. Each takes argv from its own name on and returns the exit
 * status; only src/main ends the process. Read next: main.c (the table), cmd_up.c. */
#ifndef BLASD_MAIN_COMMANDS_H
#define BLASD_MAIN_COMMANDS_H

#include "version.h" /* generated: BLASD_VERSION */

/* Exit statuses. */
enum {
    BLASD_EXIT_OK = 0,     /* done, or drained on SIGTERM or SIGINT */
    BLASD_EXIT_FAILED = 1, /* could not start, or could not go on; standard error says why */
    BLASD_EXIT_USAGE = 2,  /* the command line is wrong */
    BLASD_EXIT_DEVICE = 3, /* worker: the device failed for good; its jobs were given back */
    BLASD_EXIT_HUNG = 4    /* worker: a computation did not stop; the other jobs were given back */
};

int blasd_cmd_up(int argc, char **argv);
int blasd_cmd_api(int argc, char **argv);
int blasd_cmd_worker(int argc, char **argv);
int blasd_cmd_notify(int argc, char **argv);
int blasd_cmd_devices(int argc, char **argv);
int blasd_cmd_keys(int argc, char **argv);
/* Not for users: what blas_start.c runs in a process of its own. */
int blasd_cmd_try_blas(int argc, char **argv);

#endif

/* What `blasd api` and `blasd worker` give up once they have started, so that whoever takes one
 * over gets little: no new privileges, few files (Landlock, where the kernel has it), no system
 * call that starts a program or reaches into others (seccomp), no core file with tensors in it. All
 * threads of the process are held. Read next: SECURITY.md. */
#ifndef BLASD_MAIN_CONFINE_H
#define BLASD_MAIN_CONFINE_H

#include <stdbool.h>

/* What is within reach beside the system's own and the libraries in use. All borrowed; any
 * may be NULL. */
struct confine_files {
    const char *read[6];  /* files, with all beside them: one that is written anew is another one */
    const char *write[2]; /* directories, made where they are missing */
    const char *socket;   /* that will be removed; NULL: none */
    bool network;         /* false: this process needs neither TCP nor names of hosts */
    bool card;            /* it uses a device with a driver: its files, too */
};

/* Call both before there are threads of our own; what is missing here is said in the log, and is no
 * error. */
void confine_files(const struct confine_files *files);
void confine_calls(void);

#endif

/* What `blasd api`, `blasd worker` and `blasd notify` give up once they have started: files and TCP
 * (Landlock), and system calls that start a program or reach into others (seccomp). */
#ifndef BLASD_MAIN_CONFINE_H
#define BLASD_MAIN_CONFINE_H

#include <stdbool.h>

enum { CONFINE_READ_MOST = 7, CONFINE_WRITE_MOST = 2 };

/* What is within reach beside the system's files; borrowed, or NULL. */
struct confine_files {
    const char *read[CONFINE_READ_MOST]; /* files, with all beside them: one that is written anew is
                                            another one */
    const char *write[CONFINE_WRITE_MOST]; /* directories, made where they are missing */
    bool network, card; /* it needs TCP and names of hosts; a device with a driver */
};

/* Call both before there are other threads. What the kernel lacks is said in the log. */
void confine_files(const struct confine_files *files);
void confine_calls(void);

#endif

/* A thread that brings a Redis' append-only files to the disk once a second.
 *
 * With `appendfsync no` this bounds the loss of a power cut to about a second, while a killed
 * process loses nothing. A disk may take long for it, so the supervisor's thread does not wait. */
#ifndef BLASD_MAIN_AOF_SYNC_H
#define BLASD_MAIN_AOF_SYNC_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>

struct aof_sync {
    const char *dir; /* borrowed: of the files */
    pthread_t thread;
    sem_t stop;
    bool started;
};

/* Starts the thread. 0, or -1 with errno. */
int aof_sync_start(struct aof_sync *sync, const char *dir);
/* Syncs once more, and ends the thread, if there is one. */
void aof_sync_stop(struct aof_sync *sync);

#endif

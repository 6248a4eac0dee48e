/* To free half a gibibyte of tmpfs takes the kernel 50 to 300 ms, which no loop has to spare. */
#include "store/store_discard.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_BYTES ((off_t)8 << 20) /* some milliseconds; nobody who uses the file waits longer */
#define NICE 10

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t none_left = PTHREAD_COND_INITIALIZER;
static int running; /* threads; under the lock */

struct task {
    int fd;
    bool cut;
};

static void discard(const struct task *task) {
    struct stat info;
    off_t left = task->cut && fstat(task->fd, &info) == 0 ? info.st_size : 0;
    while (left > 0) {
        left = left > STEP_BYTES ? left - STEP_BYTES : 0;
        if (ftruncate(task->fd, left) != 0) break;
    }
    close(task->fd);
}

static void *run(void *arg) {
    prctl(PR_SET_NAME, "discard");
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
    discard(arg);
    free(arg);
    pthread_mutex_lock(&lock);
    if (--running == 0) pthread_cond_broadcast(&none_left);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Signals are for the threads that know what to do with them. */
static bool start_thread(const struct task *task) {
    struct task *copy = malloc(sizeof *copy);
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int rc;
    if (copy == NULL) return false;
    *copy = *task;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&lock); /* it does not count itself out before it is counted */
    rc = pthread_create(&thread, &attributes, run, copy);
    if (rc == 0) running++;
    pthread_mutex_unlock(&lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (rc != 0) free(copy);
    return rc == 0;
}

void store_discard(int fd, bool cut) {
    const struct task task = {fd, cut};
    struct stat info;
    bool many = fstat(fd, &info) == 0 && (off_t)info.st_blocks * 512 > STEP_BYTES;
    if (!many || !start_thread(&task)) discard(&task);
}

bool store_discard_wait(void) {
    bool any;
    pthread_mutex_lock(&lock);
    any = running > 0;
    while (running > 0) pthread_cond_wait(&none_left, &lock);
    pthread_mutex_unlock(&lock);
    return any;
}

/* fdatasync of what was appended since the last time. */
#include "main/aof_sync.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What the kernel's cache keeps: the end of the file, which is being written. */
#define KEPT_BYTES 65536

static bool ends_with(const char *text, const char *end) {
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Nobody reads the file again before the next start, and each page of it that stays cached is one
 * more that the kernel must find for what comes next. Only pages that are on the disk can go. */
static void forget_pages(int fd, off_t bytes) {
    if (bytes >= KEPT_BYTES)
        (void)posix_fadvise(fd, 0, bytes - bytes % KEPT_BYTES, POSIX_FADV_DONTNEED);
}

static void sync_file(int dir_fd, const char *name) {
    struct stat info;
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    if (fdatasync(fd) != 0) blasd_log(BLASD_LOG_WARN, "cannot sync %s: %s", name, strerror(errno));
    if (fstat(fd, &info) == 0) forget_pages(fd, info.st_size);
    close(fd);
}

static void sync_files(const char *path) {
    const struct dirent *entry;
    DIR *dir = opendir(path);
    if (dir == NULL) return;
    while ((entry = readdir(dir)) != NULL)
        if (ends_with(entry->d_name, ".incr.aof")) sync_file(dirfd(dir), entry->d_name);
    closedir(dir);
}

static void *run(void *arg) {
    struct aof_sync *sync = arg;
    bool stop = false;
    while (!stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        stop = sem_timedwait(&sync->stop, &until) == 0;
        sync_files(sync->dir);
    }
    return NULL;
}

int aof_sync_start(struct aof_sync *sync, const char *dir) {
    sigset_t all, before;
    int code;
    *sync = (struct aof_sync){.dir = dir};
    if (sem_init(&sync->stop, 0, 0) != 0) return -1;
    sigfillset(&all); /* signals are for the supervisor's thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&sync->thread, NULL, run, sync);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    sync->started = code == 0;
    errno = code;
    return code == 0 ? 0 : -1;
}

void aof_sync_stop(struct aof_sync *sync) {
    if (!sync->started) return;
    sem_post(&sync->stop);
    pthread_join(sync->thread, NULL);
    sync->started = false;
}

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

/* Returns the bytes of the file. */
static long long see_file(int dir_fd, const char *name, bool do_sync) {
    struct stat info = {.st_size = 0};
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return 0;
    if (fstat(fd, &info) != 0) info.st_size = 0;
    if (do_sync && fdatasync(fd) != 0)
        blasd_log(BLASD_LOG_WARN, "cannot sync %s: %s", name, strerror(errno));
    if (do_sync) forget_pages(fd, info.st_size);
    close(fd);
    return (long long)info.st_size;
}

/* Returns the bytes of all files; -1: there are none. */
static long long see_files(const char *path, bool do_sync) {
    long long bytes = 0;
    const struct dirent *entry;
    DIR *dir = opendir(path);
    if (dir == NULL) return -1;
    while ((entry = readdir(dir)) != NULL)
        if (ends_with(entry->d_name, ".incr.aof"))
            bytes += see_file(dirfd(dir), entry->d_name, do_sync);
    closedir(dir);
    return bytes;
}

static void sync_once(struct aof_sync *sync) {
    long long bytes = see_files(sync->dir, false);
    if (bytes < 0 || bytes == sync->synced_bytes) return;
    see_files(sync->dir, true);
    sync->synced_bytes = bytes; /* what came meanwhile is synced the next time */
}

static void *run(void *arg) {
    struct aof_sync *sync = arg;
    bool stop = false;
    while (!stop) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_mutex_lock(&sync->lock);
        if (!sync->stop) pthread_cond_timedwait(&sync->wake, &sync->lock, &until);
        stop = sync->stop;
        pthread_mutex_unlock(&sync->lock);
        sync_once(sync);
    }
    return NULL;
}

int aof_sync_start(struct aof_sync *sync, const char *dir) {
    sigset_t all, before;
    int code;
    *sync = (struct aof_sync){.dir = dir, .synced_bytes = -1};
    pthread_mutex_init(&sync->lock, NULL);
    pthread_cond_init(&sync->wake, NULL);
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
    pthread_mutex_lock(&sync->lock);
    sync->stop = true;
    pthread_cond_signal(&sync->wake);
    pthread_mutex_unlock(&sync->lock);
    pthread_join(sync->thread, NULL);
    sync->started = false;
}

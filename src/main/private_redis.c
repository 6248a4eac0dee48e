/* Paths, passwords and redis.conf of the private Redis. */
#include "main/private_redis.h"

#include "base/file.h"
#include "base/id.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "queue/queue_link.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_TAIL 4096
#define OWN_USER "user " PRIVATE_REDIS_USER " on >"
#define PART_USER "user default on >"
#define WORKER_USER "user " PRIVATE_REDIS_WORKER " on >"
#define CONFIG_MOST 65536
#define COPY "temp-rewriteaof-"

/* A directory for the socket alone, for data directories whose path is too long for one. */
static int make_socket_dir(struct private_redis *redis, struct blasd_err *err) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat info;
    bool usable = runtime != NULL && runtime[0] == '/' && strlen(runtime) < 60 &&
                  access(runtime, W_OK | X_OK) == 0;
    snprintf(redis->socket_dir, sizeof redis->socket_dir, "%s/blasd-%u-%s",
             usable ? runtime : "/tmp", (unsigned)geteuid(), redis->dir->instance);
    if (mkdir(redis->socket_dir, 0700) != 0 && errno != EEXIST)
        return blasd_fail(err, BLASD_E_internal_error, "data", "cannot make %.100s: %s",
                          redis->socket_dir, strerror(errno));
    if (lstat(redis->socket_dir, &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != geteuid() || (info.st_mode & 077) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "data",
                          "%.100s is not a directory of this user alone; remove it",
                          redis->socket_dir);
    snprintf(redis->socket, sizeof redis->socket, "%.90s/redis.sock", redis->socket_dir);
    return 0;
}

/* Half of what the machine, or the container, has: the rest is for tensors, for computing, and for
 * the copy that rewriting the append-only file needs. Redis then refuses writes, which the queue
 * reports as a reason to try again; it drops nothing. */
static uint64_t memory_share(void) {
    uint64_t share = blasd_memory_here().all / 2;
    return share < 256 * BLASD_MIB ? 256 * BLASD_MIB : share;
}

/* A path as redis.conf takes it: in quotes, with \\ before what would end them. */
static int put_path(FILE *file, const char *option, const char *path) {
    fprintf(file, "%s \"", option);
    for (const char *at = path; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ') return -1;
        if (*at == '"' || *at == '\\') fputc('\\', file);
        fputc(*at, file);
    }
    fputs("\"\n", file);
    return 0;
}

/* The password of the start before, should its file be used again; else a new one. */
static void choose_password(const char *config, const char *line, char password[33]) {
    const char *user = config == NULL ? NULL : strstr(config, line);
    if (user != NULL) user += strlen(line);
    if (user != NULL && strspn(user, "0123456789abcdef") == 32)
        memcpy(password, user, 32);
    else
        blasd_random_hex(password, 32);
    password[32] = '\0';
}

static void choose_passwords(struct private_redis *redis) {
    size_t len;
    char *config = blasd_file_read(redis->config, CONFIG_MOST, &len);
    choose_password(config, "\n" OWN_USER, redis->logins.own);
    choose_password(config, "\n" PART_USER, redis->logins.part);
    choose_password(config, "\n" WORKER_USER, redis->logins.worker);
    free(config);
}

/* For those who are started by hand. */
static int write_url(const struct private_redis *redis, struct blasd_err *err) {
    char path[PATH_MAX + 16], line[sizeof redis->url + 1];
    int len = snprintf(line, sizeof line, "%s\n", redis->url);
    snprintf(path, sizeof path, "%s/redis.url", redis->dir->path);
    if (blasd_file_replace(path, line, (size_t)len) == 0 || errno == ENOSPC) return 0;
    return blasd_fail(err, BLASD_E_internal_error, "data", "cannot write %.180s: %s", path,
                      strerror(errno));
}

/* Writes the users. `blasd up` may do anything; the parts may do to the queue's keys and channels
 * what its functions do, and nothing to Redis itself, its files or the network; a worker may call
 * its own functions alone. */
static void put_users(const struct private_redis *redis, FILE *file) {
    const char *name = redis->queue;
    char acl[BLASD_QUEUE_ACL];
    blasd_queue_worker_acl(name, acl, sizeof acl);
    fprintf(file, OWN_USER "%s ~* &* +@all\n", redis->logins.own);
    fprintf(file, WORKER_USER "%s %s\n", redis->logins.worker, acl);
    fprintf(file,
            PART_USER
            "%s ~{%s}* &{%s}* -@all +@read +@write +@pubsub "
            "+@blocking +@connection +@transaction -@admin -@dangerous -@scripting +fcall +time "
            "+function|list +function|load +info\n",
            redis->logins.part, name, name);
}

static int write_options(const struct private_redis *redis, FILE *file) {
    int failed;
    fputs("# Written by `blasd up` at each start.\n", file);
    failed = put_path(file, "dir", redis->dir->path);
    failed |= put_path(file, "unixsocket", redis->socket);
    failed |= put_path(file, "logfile", redis->log);
    fprintf(file,
            "unixsocketperm 700\nport 0\ndaemonize no\nsave \"\"\nappendonly yes\n"
            "aof-load-truncated no\n" /* redis-check-aof cuts a whole transaction off, Redis less */
            "appendfsync %s\nmaxmemory-policy noeviction\nmaxmemory %llu\n",
            redis->durable ? "always" : "no", (unsigned long long)memory_share());
    /* At the default of 64 MB a busy queue would rewrite its file every other second, and compress
     * it; while it does the service has a fifth to a third less done: 2 GiB where the disk has
     * them. A front end that falls behind on its channel is not cut off: it is on this machine. A
     * histogram of each command's latency, inside functions too, is asked for by nobody. */
    fprintf(file,
            "auto-aof-rewrite-min-size %llu\nrdbcompression no\nlatency-tracking no\n"
            "client-output-buffer-limit pubsub 0 0 0\n",
            (unsigned long long)aof_disk_rewrite_bytes(&redis->care.disk));
    put_users(redis, file);
    return failed | ferror(file);
}

/* Where the disk is full to the last byte the one of the last start is used again. */
static int write_config(const struct private_redis *redis, struct blasd_err *err) {
    char *text = NULL;
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    int failed = file == NULL || write_options(redis, file) != 0, reason = EINVAL;
    if (file != NULL && fclose(file) != 0) failed = 1;
    if (!failed) {
        failed = blasd_file_replace(redis->config, text, len) != 0;
        reason = errno;
    }
    free(text);
    if (!failed) return 0;
    if (reason != ENOSPC || access(redis->config, R_OK) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "data", "cannot write %.180s: %s",
                          redis->config, strerror(reason));
    blasd_log(BLASD_LOG_WARN, "no space to write %s: the last start's is used", redis->config);
    return 0;
}

int private_redis_init(struct private_redis *redis, const struct data_dir *dir,
                       const struct private_redis_options *options, struct blasd_err *err) {
    static char program[] = "redis-server", shell[] = "sh", option[] = "-c";
    /* redis-check-aof asks whether to cut the file */
    static char repair[] = "echo y | redis-check-aof --fix \"$0\"; exec redis-server \"$1\"";
    *redis = (struct private_redis){.dir = dir,
                                    .queue = options->queue,
                                    .durable = options->durable,
                                    .care = {.queue = options->queue}};
    if (aof_disk_open(&redis->care.disk, dir->path, options->reserve, err) != 0)
        return -(int)err->code;
    if (snprintf(redis->socket, sizeof redis->socket, "%s/redis.sock", dir->path) >=
        (int)sizeof redis->socket) {
        int code = make_socket_dir(redis, err);
        if (code != 0) return code;
    }
    snprintf(redis->log, sizeof redis->log, "%s/redis.log", dir->path);
    snprintf(redis->config, sizeof redis->config, "%s/redis.conf", dir->path);
    redis->argv[0] = program;
    redis->argv[1] = redis->config;
    snprintf(redis->files, sizeof redis->files, "%s/appendonlydir", dir->path);
    snprintf(redis->manifest, sizeof redis->manifest, "%s/appendonly.aof.manifest", redis->files);
    redis->repair_argv[0] = shell;
    redis->repair_argv[1] = option;
    redis->repair_argv[2] = repair;
    redis->repair_argv[3] = redis->manifest;
    redis->repair_argv[4] = redis->config;
    choose_passwords(redis);
    snprintf(redis->url, sizeof redis->url, "unix://:%s@%s", redis->logins.part, redis->socket);
    snprintf(redis->worker_url, sizeof redis->worker_url, "unix://" PRIVATE_REDIS_WORKER ":%s@%s",
             redis->logins.worker, redis->socket);
    if (write_config(redis, err) != 0) return -(int)err->code;
    return write_url(redis, err);
}

/* What a rewrite writes, as large as the file may be, until it takes the file's place: of one that
 * was cut off nobody else removes it. */
static void remove_copies(const struct private_redis *redis) {
    const struct dirent *entry;
    DIR *dir = opendir(redis->dir->path);
    if (dir == NULL) return;
    while ((entry = readdir(dir)) != NULL)
        if (strncmp(entry->d_name, COPY, strlen(COPY)) == 0) unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

int private_redis_attend(struct private_redis *redis, struct blasd_loop *loop,
                         struct blasd_err *err) {
    if (aof_sync_start(&redis->sync, redis->files) != 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "cannot start a thread: %s",
                          strerror(errno));
    return redis_care_start(&redis->care, loop, redis->socket, PRIVATE_REDIS_USER,
                            redis->logins.own, err);
}

char *const *private_redis_next(struct private_redis *redis, bool own_end) {
    bool repairs = own_end && !redis->care.ready && access(redis->manifest, F_OK) == 0;
    redis_care_ended(&redis->care);
    remove_copies(redis);
    return repairs ? redis->repair_argv : redis->argv;
}

void private_redis_leave(struct private_redis *redis) {
    redis_care_stop(&redis->care);
    aof_sync_stop(&redis->sync);
}

void private_redis_show_log(const struct private_redis *redis) {
    char text[LOG_TAIL + 1];
    ssize_t len;
    off_t end;
    int fd = open(redis->log, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    end = lseek(fd, 0, SEEK_END);
    lseek(fd, end > LOG_TAIL ? end - LOG_TAIL : 0, SEEK_SET);
    len = read(fd, text, LOG_TAIL);
    close(fd);
    if (len <= 0) return;
    text[len] = '\0';
    fprintf(stderr, "the end of %s:\n%s", redis->log, text);
}

void private_redis_cleanup(const struct private_redis *redis) {
    unlink(redis->socket);
    if (redis->socket_dir[0] != '\0') rmdir(redis->socket_dir);
}

/* The command line of the private Redis, and the care of its append-only file. */
#include "main/private_redis.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/file.h"
#include "base/id.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "main/aof_tail.h"
#include "queue/queue_link.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#define SYNC_NS (1000 * BLASD_MS)
#define TELL_NS (1000 * BLASD_MS)
#define REWRITE_NS (20000 * BLASD_MS) /* between attempts to get space by a rewrite */
#define PAUSE_MS 6000 /* for one: a lease of lease_ms, renewed before, does not lapse */
/* Where Redis' child is slower than that: leases lapse, but what is written meanwhile could take
 * the copy's room, and then nothing could free any. */
#define PAUSE_MOST_MS 60000
#define COPYING_NS (200 * BLASD_MS) /* between two looks at it */
#define REWRITES 2                  /* in one pause, at most */
#define REFUSED_S 5 /* what Redis was told of the disk holds, if nobody says it again */
#define LOG_TAIL 4096
#define KEPT_BYTES 65536 /* at the end of the append-only file, which is being written */
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
            "appendfsync %s\nmaxmemory-policy noeviction\nmaxmemory %llu\n",
            redis->durable ? "always" : "no", (unsigned long long)memory_share());
    /* At the default of 64 MB a busy queue would rewrite its file every other second, and compress
     * it; while it does the service has a fifth to a third less done: 2 GiB where the disk has
     * them. A front end that falls behind on its channel is not cut off: it is on this machine. A
     * histogram of each command's latency, inside functions too, is asked for by nobody. */
    fprintf(file,
            "auto-aof-rewrite-min-size %llu\nrdbcompression no\nlatency-tracking no\n"
            "client-output-buffer-limit pubsub 0 0 0\n",
            (unsigned long long)blasd_aof_room_rewrite_bytes(&redis->room));
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

/* As much again as the reserve is held, so that more than half of the disk could never be had; in
 * trying all of it would be taken. */
static int check_reserve(const char *dir, uint64_t reserve, struct blasd_err *err) {
    struct statvfs disk;
    uint64_t half = 0;
    if (reserve == 0 || statvfs(dir, &disk) != 0) return 0;
    half = (uint64_t)disk.f_blocks * disk.f_frsize / 2;
    if (reserve <= half) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, "disk_reserve_bytes",
                      "the limit disk_reserve_bytes, %llu MiB, is more than half of the disk of "
                      "%.150s, %llu MiB: no job could be taken",
                      (unsigned long long)(reserve / BLASD_MIB), dir,
                      (unsigned long long)(half / BLASD_MIB));
}

int private_redis_init(struct private_redis *redis, const struct data_dir *dir,
                       const struct private_redis_options *options, struct blasd_err *err) {
    static char program[] = "redis-server";
    *redis = (struct private_redis){
        .dir = dir, .queue = options->queue, .durable = options->durable, .synced_bytes = -1};
    if (check_reserve(dir->path, options->reserve, err) != 0) return -(int)err->code;
    blasd_aof_room_open(&redis->room, dir->path, options->reserve);
    if (snprintf(redis->socket, sizeof redis->socket, "%s/redis.sock", dir->path) >=
        (int)sizeof redis->socket) {
        int code = make_socket_dir(redis, err);
        if (code != 0) return code;
    }
    snprintf(redis->log, sizeof redis->log, "%s/redis.log", dir->path);
    snprintf(redis->config, sizeof redis->config, "%s/redis.conf", dir->path);
    redis->argv[0] = program;
    redis->argv[1] = redis->config;
    choose_passwords(redis);
    snprintf(redis->url, sizeof redis->url, "unix://:%s@%s", redis->logins.part, redis->socket);
    snprintf(redis->worker_url, sizeof redis->worker_url, "unix://" PRIVATE_REDIS_WORKER ":%s@%s",
             redis->logins.worker, redis->socket);
    /* answered where the disk is full, too, which PING is not */
    snprintf(redis->logins.question, sizeof redis->logins.question, "AUTH %s\r\nDBSIZE\r\n",
             redis->logins.part);
    if (write_config(redis, err) != 0) return -(int)err->code;
    return write_url(redis, err);
}

static bool ends_with(const char *text, const char *end) {
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Nobody reads the file again before the next start, and each page of it that stays cached is one
 * more that the kernel must find for what comes next. Only pages that are on the disk can go. */
static void forget_pages(int fd, off_t bytes) {
    (void)posix_fadvise(fd, 0, bytes - bytes % KEPT_BYTES, POSIX_FADV_DONTNEED);
}

static void sync_file(int dir_fd, const char *name, bool do_it, long long *bytes) {
    struct stat info;
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    if (fstat(fd, &info) != 0) info.st_size = 0;
    *bytes += (long long)info.st_size;
    if (do_it && fdatasync(fd) != 0)
        blasd_log(BLASD_LOG_WARN, "cannot sync %s: %s", name, strerror(errno));
    if (do_it && info.st_size >= KEPT_BYTES) forget_pages(fd, info.st_size);
    close(fd);
}

static long long each_file(const char *path, bool do_it) {
    long long bytes = 0;
    struct dirent *entry;
    DIR *dir = opendir(path);
    if (dir == NULL) return -1;
    while ((entry = readdir(dir)) != NULL)
        if (ends_with(entry->d_name, ".incr.aof"))
            sync_file(dirfd(dir), entry->d_name, do_it, &bytes);
    closedir(dir);
    return bytes;
}

static void files_of(const struct private_redis *redis, char path[PATH_MAX + 16]) {
    snprintf(path, PATH_MAX + 16, "%s/appendonlydir", redis->dir->path);
}

static void end_pause(struct private_redis *redis) {
    redis->paused = redis->copying = redis->room.rewriting = false;
    redis->rewrites = 0;
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

void private_redis_repair(struct private_redis *redis) {
    char path[PATH_MAX + 16];
    struct blasd_err err = {0};
    uint64_t cut;
    redis->synced_bytes = -1;  /* a rewrite under way may have left files of another size behind */
    redis->room.ahead_end = 0; /* cutting the file takes that with it */
    redis->told_bytes = 0;
    redis->heard = false;
    end_pause(redis);
    redis->rewritten_ns = 0; /* the pause may have been for one, which is due at once, then */
    remove_copies(redis);
    files_of(redis, path);
    if (blasd_aof_repair(path, &cut, &err) != 0)
        blasd_log(BLASD_LOG_WARN, "%s", err.detail);
    else if (cut > 0)
        blasd_log(BLASD_LOG_INFO,
                  "redis-server was ended while it wrote: the last %llu bytes of its file, which "
                  "nobody was answered for, are taken off",
                  (unsigned long long)cut);
}

void private_redis_sync(struct private_redis *redis) {
    char path[PATH_MAX + 16];
    long long bytes;
    files_of(redis, path);
    bytes = each_file(path, false);
    if (bytes < 0 || bytes == redis->synced_bytes) return;
    each_file(path, true);
    redis->synced_bytes = bytes; /* what came meanwhile is synced the next time */
}

/* Once, and when it is over. */
static void log_space(struct private_redis *redis) {
    const struct blasd_aof_room *room = &redis->room;
    if (redis->said_short == room->is_short) return;
    redis->said_short = room->is_short;
    if (room->is_short)
        blasd_log(BLASD_LOG_WARN,
                  "only %llu MiB are free on the disk of %s: no job is taken while less than "
                  "%llu MiB are (limit disk_reserve_bytes); what is queued goes on",
                  (unsigned long long)(room->free_bytes / BLASD_MIB), redis->dir->path,
                  (unsigned long long)(room->reserve / BLASD_MIB));
    else
        blasd_log(BLASD_LOG_INFO, "there is space again on the disk of %s: jobs are taken",
                  redis->dir->path);
}

#define SIGN_IN "AUTH " PRIVATE_REDIS_USER " %s\r\n"

static void ask_rewrite(struct private_redis *redis);

/* A rewrite that was under way already when the pause began leaves what was written during it, and
 * that may be all that the disk had: then one more is due, while nothing is written. */
static void looked(struct probe *probe) {
    struct private_redis *redis = blasd_container_of(probe, struct private_redis, teller);
    redis->copying = strstr(probe->got, "aof_rewrite_in_progress:1") != NULL ||
                     strstr(probe->got, "aof_rewrite_scheduled:1") != NULL;
    if (redis->copying || redis->rewrites >= REWRITES) return;
    blasd_aof_room_look(&redis->room);
    if (blasd_aof_room_rewritable(&redis->room)) ask_rewrite(redis);
}

/* It is under way, or could not begin: Redis is asked on and on until the pause is over. */
static void asked(struct probe *probe) {
    struct private_redis *redis = blasd_container_of(probe, struct private_redis, teller);
    redis->copying = true;
    snprintf(redis->words, sizeof redis->words, SIGN_IN "INFO persistence\r\n", redis->logins.own);
    probe->question = redis->words;
    probe->answer = "+OK\r\n$";
    probe->every_ns = COPYING_NS;
    probe->good = looked;
    probe_start(probe);
}

static void ask_rewrite(struct private_redis *redis) {
    redis->rewrites++;
    redis->copying = true;
    snprintf(redis->words, sizeof redis->words, SIGN_IN "BGREWRITEAOF\r\n", redis->logins.own);
    redis->teller.question = redis->words;
    redis->teller.answer = ""; /* an error says that one is under way already */
    redis->teller.every_ns = 0;
    redis->teller.good = asked;
    probe_start(&redis->teller);
}

/* Redis has heard; where it pauses for a rewrite only the copy can take what the ballast held. */
static void told(struct probe *probe) {
    struct private_redis *redis = blasd_container_of(probe, struct private_redis, teller);
    redis->heard = true;
    if (!redis->paused || redis->room.rewriting) return;
    redis->room.rewriting = true;
    blasd_aof_room_drop_ballast(&redis->room);
    ask_rewrite(redis);
}

/* A rewrite frees space only if what is written meanwhile leaves it the room for the copy. So
 * Redis takes no writes for that time: jobs are refused anyway, and the answers to what workers
 * and front ends ask come a little later. */
static bool wants_pause(const struct private_redis *redis, int64_t now) {
    return redis->room.is_short && blasd_aof_room_rewritable(&redis->room) &&
           (redis->rewritten_ns == 0 || now - redis->rewritten_ns >= REWRITE_NS);
}

static bool pause_is_over(const struct private_redis *redis, int64_t now) {
    int64_t most = (redis->copying ? PAUSE_MOST_MS : PAUSE_MS) * BLASD_MS;
    return redis->paused &&
           (!blasd_aof_room_rewritable(&redis->room) || now - redis->rewritten_ns >= most);
}

/* Adds whether the queue takes jobs. */
static void tell_queue(struct private_redis *redis, const struct blasd_queue_options *queue) {
    const struct blasd_aof_room *room = &redis->room;
    size_t len = strlen(redis->words);
    if (!room->is_short)
        snprintf(redis->words + len, sizeof redis->words - len, "HDEL {%s}:state refused\r\n",
                 queue->name);
    else
        snprintf(redis->words + len, sizeof redis->words - len,
                 "HSET {%s}:state refused \"%lld %llu MiB are free on the disk of the queue, "
                 "which needs %llu MiB (limit disk_reserve_bytes)\"\r\n",
                 queue->name, (long long)(blasd_clock_wall_us() / 1000000 + REFUSED_S),
                 (unsigned long long)(room->free_bytes / BLASD_MIB),
                 (unsigned long long)(room->reserve / BLASD_MIB));
}

/* The size from which it rewrites its file, and whether jobs are refused; as commands to be sent
 * without waiting. What it says of any but the first is of no use. */
static void tell(struct private_redis *redis, struct blasd_loop *loop,
                 const struct blasd_queue_options *queue) {
    struct blasd_aof_room *room = &redis->room;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    unsigned long long rewrite = blasd_aof_room_rewrite_bytes(room);
    int64_t now = blasd_clock_ns();
    bool moved = rewrite < redis->told_bytes / 4 * 3 || rewrite / 5 * 4 > redis->told_bytes;
    bool over = pause_is_over(redis, now), pause = wants_pause(redis, now);
    size_t len;
    if (redis->paused && !over) return; /* it would not be answered */
    if (!moved && !over && !pause && redis->told_short == room->is_short &&
        !(room->is_short && now - redis->told_ns >= TELL_NS))
        return;
    if (over) {
        end_pause(redis);
        /* Before Redis writes again the next copy's room is out of its reach, whatever became of
         * this one: on a disk that is full without it nothing could free any. */
        blasd_aof_room_hold_ballast(room);
    }
    redis->told_bytes = rewrite;
    redis->told_short = room->is_short;
    redis->told_ns = now;
    redis->teller.loop = loop;
    probe_stop(&redis->teller);
    snprintf(redis->words, sizeof redis->words,
             SIGN_IN "%sCONFIG SET auto-aof-rewrite-min-size %llu\r\n", redis->logins.own,
             pause ? "" : "CLIENT UNPAUSE\r\n", rewrite);
    tell_queue(redis, queue);
    if (pause) {
        redis->rewritten_ns = now;
        redis->paused = true;
        len = strlen(redis->words);
        snprintf(redis->words + len, sizeof redis->words - len, "CLIENT PAUSE %d WRITE\r\n",
                 PAUSE_MOST_MS);
    }
    memcpy(address.sun_path, redis->socket, sizeof address.sun_path);
    memcpy(&redis->teller.address, &address, sizeof address);
    redis->teller.address_len = sizeof address;
    redis->teller.question = redis->words;
    redis->teller.answer = "+OK";
    redis->teller.every_ns = 0;
    redis->teller.good = told;
    probe_start(&redis->teller);
}

void private_redis_care(struct private_redis *redis, struct blasd_loop *loop,
                        const struct blasd_queue_options *queue) {
    int64_t now = blasd_clock_ns();
    blasd_aof_room_look(&redis->room);
    log_space(redis);
    tell(redis, loop, queue);
    if (now - redis->synced_ns < SYNC_NS) return;
    redis->synced_ns = now;
    private_redis_sync(redis);
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

/* How many jobs a second pass through the queue: submit, claim, begin, finish, by jobs a round
 * trip.
 *
 *   bench_queue [URL [SECONDS [FRAME_BYTES [BATCH_ENTRY]]]]
 *
 * BATCH_ENTRY: so many jobs share an entry of the queue at the most; 1: each goes alone.
 * Without a URL it starts a redis-server of its own (unix socket, append-only file, no fsync) in a
 * temporary directory. One process plays front end and worker, one after the other, over two
 * connections, so a figure holds the cost of both sides' clients, too. Redis' own time comes from
 * INFO. */
#include "base/clock.h"
#include "queue/queue_link.h"
#include "queue/record_frame.h"
#include "queue/worker_queue.h"
#include "redis/route.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FRAME 300 /* by default, as of a product of 4 x 4 */
#define FRAME_MOST (1 << 20)
#define RECORD 260
#define DEPTH_MOST 256
#define BATCH_ENTRY 64

static void die(const char *what) {
    fprintf(stderr, "bench_queue: %s\n", what);
    exit(1);
}

static char dir[] = "/tmp/bench_queue.XXXXXX";

static void stop_redis(pid_t redis) {
    kill(redis, SIGTERM);
    waitpid(redis, NULL, 0);
    pid_t rm = fork();
    if (rm == 0) {
        execlp("rm", "rm", "-rf", dir, (char *)NULL);
        _exit(127);
    }
    waitpid(rm, NULL, 0);
}

static pid_t start_redis(char *url, size_t size) {
    char socket_path[64];
    if (!mkdtemp(dir)) die("cannot make a temporary directory");
    snprintf(socket_path, sizeof socket_path, "%s/r.sock", dir);
    snprintf(url, size, "unix:%s", socket_path);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_path, "--dir",
               dir, "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-min-size",
               "2gb", "--rdbcompression", "no", "--save", "", "--logfile", "redis.log",
               (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 300 && access(socket_path, F_OK) != 0; i++) usleep(10000);
    return pid;
}

struct bench {
    struct blasd_link_address address;
    struct blasd_link_limits limits;
    redisContext *front;
    struct blasd_worker_queue *worker;
    size_t frame_len;
    int batch_entry;
    struct blasd_buf record_frames[DEPTH_MOST];
    char frame[FRAME_MOST], record[RECORD];
};

/* Makes `jobs` ids, the first of them new, and the record frames of their batch entry; what FRAME
 * is. */
static const struct blasd_buf *pack(struct bench *bench, char id[BLASD_ID_LEN + 1], int jobs,
                                    struct blasd_buf *record_frames) {
    blasd_id_new(BLASD_ID_SYNC, blasd_clock_wall_us(), id);
    blasd_buf_reset(record_frames);
    if (jobs == 1 && blasd_buf_add(record_frames, bench->frame, bench->frame_len) < 0)
        die("no memory");
    for (int i = 0; jobs > 1 && i < jobs; i++) {
        if (blasd_record_frame_add(record_frames, id, bench->frame, bench->frame_len) < 0)
            die("no memory");
        blasd_random_hex(id + BLASD_ID_ENTRY, BLASD_ID_LEN - BLASD_ID_ENTRY);
    }
    return record_frames;
}

static void submit(struct bench *bench, int depth) {
    static char ids[DEPTH_MOST][BLASD_ID_LEN + 1], costs[DEPTH_MOST][16];
    static unsigned calls;
    char seq[24];
    const char *argv[7 + 6 * DEPTH_MOST] = {
        "FCALL", BLASD_QUEUE_FN("submit"), "1", "{bench}", bench->limits.text, "bench", seq};
    size_t lens[7 + 6 * DEPTH_MOST];
    int argc = 7, entries = 0;
    snprintf(seq, sizeof seq, "%u", ++calls);
    for (int i = 0; i < 7; i++) lens[i] = strlen(argv[i]);
    for (int left = depth; left > 0; entries++) {
        int jobs = left < bench->batch_entry ? left : bench->batch_entry;
        const struct blasd_buf *frame =
            pack(bench, ids[entries], jobs, &bench->record_frames[entries]);
        snprintf(costs[entries], sizeof costs[0], jobs > 1 ? "4096 %d" : "4096", jobs);
        const char *rest[] = {"2", costs[entries], "",
                              "\tfront:0123456789abcdef\tmatmul\tanonymous"};
        argv[argc] = ids[entries];
        lens[argc++] = jobs > 1 ? BLASD_ID_ENTRY : BLASD_ID_LEN;
        argv[argc] = frame->data;
        lens[argc++] = frame->len;
        for (int k = 0; k < 4; k++) {
            argv[argc] = rest[k];
            lens[argc++] = strlen(rest[k]);
        }
        left -= jobs;
    }
    redisReply *reply = redisCommandArgv(bench->front, argc, argv, lens);
    if (!reply || reply->type != REDIS_REPLY_ARRAY || (int)reply->elements != entries + 3)
        die(reply && reply->str ? reply->str : "submit failed");
    freeReplyObject(reply);
}

static void work(struct bench *bench, int depth) {
    static struct blasd_claim claims[DEPTH_MOST];
    static struct blasd_completion completions[DEPTH_MOST];
    const char *ids[DEPTH_MOST];
    struct blasd_err err;
    bool lost;
    int left = depth, count;
    while (left > 0) {
        if (blasd_worker_queue_claim(bench->worker, depth, UINT64_C(1) << 40, claims, &count, &lost,
                                     &err) < 0 ||
            lost || count == 0)
            die("claim failed");
        for (int i = 0; i < count; i++) {
            ids[i] = claims[i].id;
            completions[i] = (struct blasd_completion){
                .id = claims[i].id, .record = bench->record, .record_len = RECORD};
        }
        if (blasd_worker_queue_begin(bench->worker, ids, count, &err) < 0) die("begin failed");
        if (blasd_worker_queue_finish(bench->worker, completions, count, &lost, &err) < 0 || lost)
            die("finish failed");
        for (int i = 0; i < count; i++)
            if (!completions[i].accepted) die("a completion was refused");
        left -= count;
    }
}

/* Seconds of processor time that Redis' main thread has used. */
static double redis_cpu(struct bench *bench) {
    static const char *const names[] = {"used_cpu_user_main_thread:", "used_cpu_sys_main_thread:"};
    redisReply *reply = redisCommand(bench->front, "INFO cpu");
    double sum = 0;
    for (int i = 0; i < 2 && reply && reply->str; i++) {
        const char *at = strstr(reply->str, names[i]);
        if (at) sum += strtod(at + strlen(names[i]), NULL);
    }
    freeReplyObject(reply);
    return sum;
}

/* Microseconds that all function calls have taken. */
static double redis_us(struct bench *bench) {
    redisReply *reply = redisCommand(bench->front, "INFO commandstats");
    const char *at = reply && reply->str ? strstr(reply->str, "cmdstat_fcall:") : NULL;
    double us = at && (at = strstr(at, "usec=")) ? strtod(at + 5, NULL) : 0;
    freeReplyObject(reply);
    return us;
}

int main(int argc, char **argv) {
    static struct blasd_limits limits;
    char url[256];
    pid_t redis = 0;
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 3;
    struct blasd_err err;
    struct blasd_store *store = NULL;
    static struct bench bench;
    int64_t epoch;
    memset(&bench, 'x', sizeof bench);
    memcpy(bench.record, "BLRF", 4); /* of a job that succeeded */
    bench.record[12] = 2;
    bench.frame_len = argc > 3 ? (size_t)strtoul(argv[3], NULL, 10) : FRAME;
    bench.batch_entry = argc > 4 ? (int)strtol(argv[4], NULL, 10) : BATCH_ENTRY;
    if (bench.batch_entry < 1 || bench.batch_entry > DEPTH_MOST)
        die("a batch entry is of 1 to 256 jobs");
    for (int i = 0; i < DEPTH_MOST; i++) blasd_buf_init(&bench.record_frames[i], UINT64_C(1) << 30);
    if (bench.frame_len > FRAME_MOST) die("a frame is at most 1 MiB");
    signal(SIGPIPE, SIG_IGN);
    blasd_limits_init(&limits);
    if (argc > 1 && argv[1][0])
        snprintf(url, sizeof url, "%s", argv[1]);
    else
        redis = start_redis(url, sizeof url);
    if (blasd_store_open("redis", &store, &err) < 0) die(err.detail);
    struct blasd_queue_options options = {.url = url,
                                          .name = "bench",
                                          .limits = &limits,
                                          .store = store,
                                          .may_lose_jobs = true}; /* only numbers come of them */
    blasd_link_limits(&options, &bench.limits);
    if (blasd_worker_queue_open(&options, &bench.worker, &err) < 0 ||
        blasd_worker_queue_register(bench.worker, "bench", BLASD_DEVICE_CPU, "{\"id\":\"cpu:0\"}",
                                    &epoch, &err) < 0 ||
        blasd_link_parse(url, options.name, &bench.address, &err) < 0 ||
        blasd_link_connect(&bench.address, 1000, &bench.front, &err) < 0)
        die(err.detail);
    printf("%8s %12s %10s %18s %16s\n", "depth", "jobs/s", "us a job", "in functions, us",
           "Redis cpu, us");
    static const int depths[] = {1, 16, 64, 256};
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
        int64_t start = blasd_clock_ns(), now = start, renewed = start;
        double before = redis_us(&bench), cpu = redis_cpu(&bench);
        long jobs = 0;
        bool lost;
        while (now - start < (int64_t)(seconds * 1e9)) {
            submit(&bench, depths[d]);
            work(&bench, depths[d]);
            jobs += depths[d];
            now = blasd_clock_ns();
            if (now - renewed < 1000000000) continue;
            blasd_worker_queue_renew(bench.worker, "{\"id\":\"cpu:0\"}", &lost, &err);
            renewed = now;
        }
        double s = (double)(now - start) / 1e9;
        printf("%8d %12.0f %10.1f %18.1f %16.1f\n", depths[d], (double)jobs / s,
               s * 1e6 / (double)jobs, (redis_us(&bench) - before) / (double)jobs,
               (redis_cpu(&bench) - cpu) * 1e6 / (double)jobs);
        fflush(stdout);
    }
    blasd_worker_queue_release(bench.worker, &err);
    blasd_worker_queue_free(bench.worker);
    redisFree(bench.front);
    blasd_store_free(store);
    if (redis > 0) stop_redis(redis);
    return 0;
}

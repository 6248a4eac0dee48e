/* What this machine does without the service: round trips between processes, memory, system calls,
 * arithmetic. Rates and latencies of the service follow these from day to day and from host to
 * host, so `make bench` measures them before its first load and after its last.
 *
 *   bench_machine [--quick] [--rounds N] [--text]
 *
 * Prints JSON: a figure has what it is, its unit, the median of the rounds, the least, the most and
 * all rounds, or is null; left_out says why then. --text: a line a figure in place of that. Five
 * rounds take some 3 s; --quick takes two short ones and shows that it works.
 *
 * Read next: machine.h. */
#include "machine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/times.h>
#include <time.h>

#define ROUNDS_MOST 100

struct figure {
    const char *name, *unit, *what;
};

struct probe {
    const char *(*measure)(struct machine *m, double *values);
    struct figure figures[MACHINE_VALUES]; /* the second has no name where there is one */
};

static const struct probe probes[] = {
    {machine_pipe_one_core,
     {{"pipe_one_core_us", "us", "pipe round trip, both ends on one core"},
      {"pipe_one_core_p99_us", "us", "pipe round trip, both ends on one core, p99"}}},
    {machine_pipe_two_cores,
     {{"pipe_two_cores_us", "us", "pipe round trip, two cores"},
      {"pipe_two_cores_p99_us", "us", "pipe round trip, two cores, p99"}}},
    {machine_pipe_awake,
     {{"pipe_two_cores_awake_us", "us", "pipe round trip, two cores that may not halt"},
      {"pipe_two_cores_awake_p99_us", "us", "pipe round trip, two cores that may not halt, p99"}}},
    {machine_tcp_one_core,
     {{"tcp_one_core_us", "us", "loopback TCP, 64 bytes and back, one core"},
      {"tcp_one_core_p99_us", "us", "loopback TCP, 64 bytes and back, one core, p99"}}},
    {machine_tcp_two_cores,
     {{"tcp_two_cores_us", "us", "loopback TCP, 64 bytes and back, two cores"},
      {"tcp_two_cores_p99_us", "us", "loopback TCP, 64 bytes and back, two cores, p99"}}},
    {machine_redis_ping,
     {{"redis_ping_us", "us", "PING to Redis, unix socket, two cores"},
      {"redis_ping_p99_us", "us", "PING to Redis, unix socket, two cores, p99"}}},
    {machine_redis_ping_poll,
     {{"redis_ping_poll_us", "us", "PING to Redis, its client waits in poll"},
      {"redis_ping_poll_p99_us", "us", "PING to Redis, its client waits in poll, p99"}}},
    {machine_tcp_stream, {{"tcp_stream_gb_s", "GB/s", "loopback TCP stream, two cores"}}},
    {machine_copy, {{"copy_gb_s", "GB/s", "memcpy of 64 MiB, used memory"}}},
    {machine_fresh_memory, {{"fresh_page_us", "us", "first touch of a page of fresh memory"}}},
    {machine_fresh_tmpfs, {{"fresh_tmpfs_page_us", "us", "first touch of a page in /dev/shm"}}},
    {machine_system_call, {{"system_call_ns", "ns", "system call (getppid)"}}},
    {machine_sgemm_one_core, {{"sgemm_one_core_gflops", "GFLOP/s", "sgemm 1024, one core"}}},
    {machine_sgemm_all_cores, {{"sgemm_all_cores_gflops", "GFLOP/s", "sgemm 1024, all cores"}}},
};
#define PROBES (int)(sizeof probes / sizeof *probes)

struct result { /* of a probe */
    double rounds[MACHINE_VALUES][ROUNDS_MOST];
    const char *missing; /* why there is none */
};

double machine_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void machine_bind(int core) {
    cpu_set_t one;
    if (core < 0) return;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
}

void machine_unbind(struct machine *m) {
    sched_setaffinity(0, sizeof m->allowed, &m->allowed);
}

/* A number that names the physical core a CPU belongs to; `cpu` itself where nothing says so. */
static long core_of(int cpu) {
    char path[96];
    long core = cpu, package = 0;
    const char *const names[] = {"core_id", "physical_package_id"};
    long *const values[] = {&core, &package};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", cpu, names[i]);
        FILE *file = fopen(path, "re");
        if (file == NULL) continue;
        if (fscanf(file, "%ld", values[i]) != 1) *values[i] = i == 0 ? cpu : 0;
        fclose(file);
    }
    return package * 65536 + core;
}

/* The first core that is allowed, and the next that does not share its silicon. */
static void choose_pair(struct machine *m) {
    m->first = m->second = -1;
    for (int cpu = 0; cpu < CPU_SETSIZE && m->second < 0; cpu++) {
        if (!CPU_ISSET(cpu, &m->allowed)) continue;
        if (m->first < 0)
            m->first = cpu;
        else if (core_of(cpu) != core_of(m->first))
            m->second = cpu;
    }
}

/* Memory that has been touched, and that no child process gets. */
static char *used_memory(size_t size) {
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    madvise(memory, size, MADV_DONTFORK);
    memset(memory, 1, size);
    return memory;
}

int machine_init(struct machine *m) {
    *m = (struct machine){.first = -1, .second = -1, .trips_s = 0.05, .trips_least = 50};
    if (sched_getaffinity(0, sizeof m->allowed, &m->allowed) < 0) return -1;
    m->cores = CPU_COUNT(&m->allowed);
    choose_pair(m);
    m->from = used_memory(MACHINE_COPY);
    m->to = used_memory(MACHINE_COPY);
    return m->from != NULL && m->to != NULL ? 0 : -1;
}

void machine_release(struct machine *m) {
    machine_redis_stop(m);
    if (m->from != NULL) munmap(m->from, MACHINE_COPY);
    if (m->to != NULL) munmap(m->to, MACHINE_COPY);
}

/* Ticks of all cores since the start: all, idle and stolen (the host ran something else); and of
 * them this program's own, which its ended processes add to. */
struct ticks {
    double all, idle, stolen, own;
};

static struct ticks ticks_now(void) {
    struct ticks ticks = {0};
    FILE *file = fopen("/proc/stat", "re");
    if (file == NULL) return ticks;
    double part[8] = {0}; /* user nice system idle iowait irq softirq steal */
    if (fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &part[0], &part[1], &part[2], &part[3],
               &part[4], &part[5], &part[6], &part[7]) >= 4) {
        for (int i = 0; i < 8; i++) ticks.all += part[i];
        ticks.idle = part[3] + part[4];
        ticks.stolen = part[7];
    }
    fclose(file);
    struct tms own;
    times(&own);
    ticks.own = (double)(own.tms_utime + own.tms_stime + own.tms_cutime + own.tms_cstime);
    return ticks;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* -> the median of `n` values; `sorted` gets them in order. */
static double median(const double *values, int n, double *sorted) {
    memcpy(sorted, values, (size_t)n * sizeof *values);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

struct report {
    struct result results[sizeof probes / sizeof *probes];
    int rounds;
    double seconds, idle, stolen, others; /* shares of all cores' time */
};

static void print_figure_json(const struct figure *figure, const double *values, int rounds) {
    double sorted[ROUNDS_MOST], middle = median(values, rounds, sorted);
    printf("{\"what\":\"%s\",\"unit\":\"%s\",\"median\":%.5g,\"least\":%.5g,\"most\":%.5g,"
           "\"rounds\":[",
           figure->what, figure->unit, middle, sorted[0], sorted[rounds - 1]);
    for (int i = 0; i < rounds; i++) printf("%s%.5g", i ? "," : "", values[i]);
    printf("]}");
}

static void print_json(const struct machine *m, const struct report *report) {
    const char *comma = "";
    printf("{\"seconds\":%.3f,\"rounds\":%d,\"cores\":%d,\"pair\":[%d", report->seconds,
           report->rounds, m->cores, m->first);
    if (m->second >= 0) printf(",%d", m->second);
    printf("],\"idle_share\":%.4f,\"others_share\":%.4f,\"steal_share\":%.4f,\n\"figures\":{",
           report->idle, report->others, report->stolen);
    for (int p = 0; p < PROBES; p++)
        for (int v = 0; v < MACHINE_VALUES && probes[p].figures[v].name; v++) {
            printf("%s\n  \"%s\":", comma, probes[p].figures[v].name);
            comma = ",";
            if (report->results[p].missing)
                printf("null");
            else
                print_figure_json(&probes[p].figures[v], report->results[p].rounds[v],
                                  report->rounds);
        }
    comma = "";
    printf("},\n\"left_out\":{");
    for (int p = 0; p < PROBES; p++) {
        if (report->results[p].missing == NULL) continue;
        printf("%s\"%s\":\"%s\"", comma, probes[p].figures[0].name, report->results[p].missing);
        comma = ",";
    }
    printf("}}\n");
}

static void print_text(const struct report *report) {
    double sorted[ROUNDS_MOST];
    for (int p = 0; p < PROBES; p++)
        for (int v = 0; v < MACHINE_VALUES && probes[p].figures[v].name; v++) {
            const struct figure *figure = &probes[p].figures[v];
            printf("%-48s ", figure->what);
            if (report->results[p].missing) {
                printf("-  (%s)\n", report->results[p].missing);
                continue;
            }
            double middle = median(report->results[p].rounds[v], report->rounds, sorted);
            printf("%8.4g [%.4g .. %.4g] %s\n", middle, sorted[0], sorted[report->rounds - 1],
                   figure->unit);
        }
    printf("%d rounds in %.1f s; of all cores' time meanwhile %.1f %% idle, %.1f %% other work, "
           "%.1f %% stolen by the host\n",
           report->rounds, report->seconds, 100 * report->idle, 100 * report->others,
           100 * report->stolen);
}

static void measure(struct machine *m, struct report *report) {
    struct ticks before = ticks_now();
    double begin = machine_now(), values[MACHINE_VALUES];
    for (int round = 0; round < report->rounds; round++)
        for (int p = 0; p < PROBES; p++) {
            struct result *result = &report->results[p];
            if (result->missing) continue; /* nor will it work in the next round */
            result->missing = probes[p].measure(m, values);
            for (int v = 0; v < MACHINE_VALUES && !result->missing; v++)
                result->rounds[v][round] = probes[p].figures[v].name ? values[v] : 0;
        }
    report->seconds = machine_now() - begin;
    machine_redis_stop(m); /* so that its time is known as ours */
    struct ticks after = ticks_now();
    double all = after.all - before.all;
    if (all <= 0) return;
    report->stolen = (after.stolen - before.stolen) / all;
    report->idle = (after.idle - before.idle) / all;
    report->others = 1 - report->stolen - report->idle - (after.own - before.own) / all;
    if (report->others < 0) report->others = 0; /* ticks are coarse */
}

struct options {
    bool quick, text;
    int rounds;
};

/* 0, or -1 where there is something that it does not know. */
static int read_options(int argc, char **argv, struct options *options) {
    char *end = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--text") == 0) {
            options->text = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            options->quick = true;
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
            long rounds = strtol(argv[++i], &end, 10);
            if (*end != '\0' || rounds < 1 || rounds > ROUNDS_MOST) return -1;
            options->rounds = (int)rounds;
        } else {
            return -1;
        }
    }
    if (options->rounds == 0) options->rounds = options->quick ? 2 : 5;
    return 0;
}

int main(int argc, char **argv) {
    static struct report report;
    static struct machine machine;
    struct options options = {0};
    if (read_options(argc, argv, &options) < 0) {
        fprintf(stderr, "usage: %s [--quick] [--rounds 1..%d] [--text]\n", argv[0], ROUNDS_MOST);
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    int failed = machine_init(&machine);
    if (failed < 0) {
        fprintf(stderr, "bench_machine: cannot be set up: %s\n", strerror(errno));
    } else {
        if (options.quick) machine.trips_s = 0.01;
        report.rounds = options.rounds;
        measure(&machine, &report);
        if (options.text)
            print_text(&report);
        else
            print_json(&machine, &report);
    }
    machine_release(&machine);
    return failed < 0 ? 1 : 0;
}

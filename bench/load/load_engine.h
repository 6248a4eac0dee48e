/* The engine's inside, shared by the connections (load_engine.c) and the jobs that are polled
 * (load_jobs.c). */
#ifndef BLASD_BENCH_LOAD_ENGINE_H
#define BLASD_BENCH_LOAD_ENGINE_H

#include "load.h"
#include "load_tls.h"

#include <netinet/in.h>

enum connection_state { CONNECTION_CLOSED, CONNECTION_FREE, CONNECTION_BUSY };

struct polled_job {
    int64_t submitted, due, interval;
    struct polled_job *next;
    char location[128];
};

struct connection {
    int fd;
    SSL *tls; /* owned; NULL: none */
    enum connection_state state;
    bool connected, in_ring, again, send_failed;
    unsigned served;
    struct load_request *request; /* borrowed */
    struct polled_job *job;       /* owned while it is being asked for, else NULL */
    const char *head;             /* borrowed: the request's, or `poll_head` */
    size_t head_len, sent;
    int64_t due, started;
    struct load_reply reply;
    char poll_head[320];
};

struct job_queue {
    struct polled_job *first, *last;
};

#define JOB_LEVELS 12 /* one queue for each interval, so that each is in the order of its times */

struct engine {
    struct load_spec *spec;
    struct load_result *result;
    struct connection *connections;
    int *free_ring;
    unsigned free_head, free_count;
    int epoll, busy, gathered;
    bool stop, gathering;
    char *room;
    struct sockaddr_in address;
    struct load_request poll_request;
    struct job_queue queues[JOB_LEVELS];
    struct polled_job *spare;
    uint64_t outstanding; /* jobs submitted and not seen to have ended */
    uint64_t issued, random;
    double next_due;
    int64_t now, begin, end, last_right, last_answer, last_tick;
};

/* Keeps the first thing that went wrong, for the report. */
void engine_sample(struct engine *engine, const char *what, const char *bytes, size_t n);
void engine_job_ended(struct engine *engine, int64_t submitted_at);

void jobs_release(struct engine *engine);
/* Whether another job may be submitted. */
bool jobs_room(const struct engine *engine);
/* Whether none is outstanding. */
bool jobs_none(const struct engine *engine);
uint64_t jobs_left(const struct engine *engine);
/* A submission was answered as it should be: the job is to be asked for from now on. */
void jobs_submitted(struct engine *engine, struct connection *c);
/* Prepares `c` to ask for a job that is due. */
bool jobs_take_due(struct engine *engine, struct connection *c);
int64_t jobs_next_due(const struct engine *engine);
/* An answer about `c->job` has come; takes the job. */
void jobs_polled(struct engine *engine, struct connection *c);
/* The question was lost; it is asked again later. */
void jobs_put_back(struct engine *engine, struct connection *c);

#endif

/* Jobs that were submitted and are asked for until they have ended. Each waits in the queue of its
 * interval, which doubles up to the most; a job that has not ended in time is given up and counted.
 * Read next: load_engine.c. */
#include "load_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void free_list(struct polled_job *job) {
    while (job != NULL) {
        struct polled_job *next = job->next;
        free(job);
        job = next;
    }
}

void jobs_release(struct engine *engine) {
    for (int i = 0; i < JOB_LEVELS; i++) free_list(engine->queues[i].first);
    for (int i = 0; engine->connections != NULL && i < engine->spec->connections; i++)
        free(engine->connections[i].job);
    free_list(engine->spare);
}

bool jobs_room(const struct engine *engine) {
    return engine->outstanding + (uint64_t)engine->busy < engine->spec->poll.window;
}

bool jobs_none(const struct engine *engine) {
    return engine->outstanding == 0;
}

uint64_t jobs_left(const struct engine *engine) {
    return engine->outstanding;
}

static void give_up(struct engine *engine, struct polled_job *job) {
    engine->outstanding--;
    job->next = engine->spare;
    engine->spare = job;
}

static void queue_job(struct engine *engine, struct polled_job *job) {
    int level = 0;
    struct job_queue *queue;
    for (int64_t i = engine->spec->poll.interval_ns; i < job->interval && level < JOB_LEVELS - 1;
         i *= 2)
        level++;
    queue = &engine->queues[level];
    job->due = engine->now + job->interval;
    job->next = NULL;
    if (queue->last != NULL)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
}

void jobs_submitted(struct engine *engine, struct connection *c) {
    struct polled_job *job = engine->spare;
    if (c->reply.location[0] != '/') {
        engine_sample(engine, "no Location", c->reply.body, c->reply.body_len);
        engine->result->lost++;
        return;
    }
    if (job != NULL)
        engine->spare = job->next;
    else
        job = malloc(sizeof *job);
    if (job == NULL) {
        engine->stop = engine->result->aborted = true;
        return;
    }
    memcpy(job->location, c->reply.location, sizeof job->location);
    job->submitted = c->due;
    job->interval = engine->spec->poll.interval_ns;
    engine->outstanding++;
    queue_job(engine, job);
    engine->result->submit_seconds = (double)(engine->now - engine->begin) * 1e-9;
}

bool jobs_take_due(struct engine *engine, struct connection *c) {
    for (int i = JOB_LEVELS - 1; i >= 0; i--) {
        struct job_queue *queue = &engine->queues[i];
        struct polled_job *job = queue->first;
        if (job == NULL || job->due > engine->now) continue;
        queue->first = job->next;
        if (queue->first == NULL) queue->last = NULL;
        c->job = job;
        c->head = c->poll_head;
        c->head_len = (size_t)snprintf(
            c->poll_head, sizeof c->poll_head, "GET %s%.100s HTTP/1.1\r\nHost: %.50s:%d\r\n\r\n",
            job->location, engine->spec->poll.suffix, engine->spec->host, engine->spec->port);
        engine->result->polls++;
        return true;
    }
    return false;
}

int64_t jobs_next_due(const struct engine *engine) {
    int64_t due = INT64_MAX;
    for (int i = 0; i < JOB_LEVELS; i++)
        if (engine->queues[i].first != NULL && engine->queues[i].first->due < due)
            due = engine->queues[i].first->due;
    return due;
}

static bool says(const struct load_reply *reply, const char *what) {
    return what != NULL && reply->body != NULL &&
           memmem(reply->body, reply->body_len, what, strlen(what)) != NULL;
}

void jobs_put_back(struct engine *engine, struct connection *c) {
    struct polled_job *job = c->job;
    c->job = NULL;
    if (engine->now - job->submitted > engine->spec->poll.timeout_ns) {
        engine->result->lost++;
        give_up(engine, job);
        return;
    }
    job->interval *= 2;
    if (job->interval > engine->spec->poll.most_interval_ns)
        job->interval = engine->spec->poll.most_interval_ns;
    queue_job(engine, job);
}

void jobs_polled(struct engine *engine, struct connection *c) {
    struct polled_job *job = c->job;
    bool well = c->reply.status == 200 && says(&c->reply, engine->spec->poll.ended);
    bool badly = !well && (c->reply.status == 404 || c->reply.status == 410 ||
                           (c->reply.status == 200 && says(&c->reply, engine->spec->poll.failed)));
    if (!well && !badly) {
        jobs_put_back(engine, c);
        return;
    }
    c->job = NULL;
    if (well) {
        engine->result->ended++;
        engine_job_ended(engine, job->submitted);
    } else {
        engine->result->failed++;
        engine_sample(engine, "a job failed", c->reply.body, c->reply.body_len);
    }
    give_up(engine, job);
}

/* The descriptor goes over the socket (SCM_RIGHTS), the answer over the new connection. */
#include "redis/guarded.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GIVEN_TIMES 3 /* route.c takes twice the time for all servers together */

union control { /* aligned for its header; two descriptors fit its padding */
    struct cmsghdr head;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
};

static int ask(int guard, struct blasd_guard_ask *question, int end) {
    union control control = {.bytes = {0}};
    struct iovec text = {question, sizeof *question};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(sizeof end)};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof end);
    memcpy(CMSG_DATA(head), &end, sizeof end);
    return sendmsg(guard, &message, MSG_NOSIGNAL) == (ssize_t)sizeof *question ? 0 : -1;
}

/* "OK", or "-CODE DETAIL" as an error reply, which hiredis gives without its minus. */
static int hear(redisContext *redis, struct blasd_err *err) {
    void *got = NULL;
    redisReply *reply;
    char *detail;
    long code = BLASD_E_queue_unavailable;
    if (redisGetReply(redis, &got) != REDIS_OK)
        return blasd_fail(err, BLASD_E_queue_unavailable, "", "Redis cannot be reached: %.100s",
                          redis->errstr);
    reply = got;
    if (reply->type == REDIS_REPLY_STATUS) {
        freeReplyObject(reply);
        return 0;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        code = strtol(reply->str, &detail, 10);
        if (code != BLASD_E_internal_error) code = BLASD_E_queue_unavailable;
        blasd_fail(err, (enum blasd_code)code, "", "%.200s", *detail == ' ' ? detail + 1 : detail);
    } else
        blasd_fail(err, BLASD_E_queue_unavailable, "", "the guard has answered in another form");
    freeReplyObject(reply);
    return -(int)code;
}

int blasd_guarded_connect(const struct blasd_link_address *address, int timeout_ms,
                          redisContext **ret, struct blasd_err *err) {
    struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    struct timeval whole = {.tv_sec = 1 + GIVEN_TIMES * timeout_ms / 1000};
    struct blasd_guard_ask question = {.timeout_ms = timeout_ms};
    redisContext *redis;
    int ends[2], rc;
    *ret = NULL;
    memcpy(question.tag, address->tag, sizeof question.tag);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return blasd_fail(err, BLASD_E_queue_unavailable, "", "no socket: %s", strerror(errno));
    rc = ask(address->guard, &question, ends[1]);
    close(ends[1]);
    redis = rc == 0 ? redisConnectFd(ends[0]) : NULL;
    if (redis == NULL || redis->err != 0) {
        if (redis != NULL)
            redisFree(redis);
        else
            close(ends[0]);
        return rc == 0 ? blasd_fail(err, BLASD_E_internal_error, "", "Out of memory")
                       : blasd_fail(err, BLASD_E_internal_error, "",
                                    "the guard of this process has ended");
    }
    redisSetTimeout(redis, whole);
    rc = hear(redis, err);
    if (rc != 0) {
        redisFree(redis);
        return rc;
    }
    redisSetTimeout(redis, limit);
    *ret = redis;
    return 0;
}

/* The descriptors that came, into room for as many as fit `control`; how many. */
static int take_ends(struct msghdr *message, int ends[2]) {
    const struct cmsghdr *head = CMSG_FIRSTHDR(message);
    size_t bytes;
    if (head == NULL || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) return 0;
    bytes = head->cmsg_len - CMSG_LEN(0);
    if (bytes > 2 * sizeof *ends) bytes = 2 * sizeof *ends;
    memcpy(ends, CMSG_DATA(head), bytes);
    return (int)(bytes / sizeof *ends);
}

int blasd_guard_receive(int guard, struct blasd_guard_ask *ret, int *client) {
    union control control;
    struct iovec text = {ret, sizeof *ret};
    struct msghdr message = {.msg_iov = &text,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    int ends[2] = {-1, -1}, count;
    ssize_t got;
    do got = recvmsg(guard, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0) return 0;
    count = take_ends(&message, ends);
    *client = ends[0];
    if (count == 1 && got == (ssize_t)sizeof *ret &&
        memchr(ret->tag, '\0', sizeof ret->tag) != NULL)
        return 1;
    while (count > 0) close(ends[--count]);
    return -1;
}

void blasd_guard_tell(int client, int rc, const struct blasd_err *err) {
    char text[320];
    int len = rc == 0 ? snprintf(text, sizeof text, "+OK\r\n")
                      : snprintf(text, sizeof text, "-%d %.200s", -rc, err->detail);
    if (rc != 0) {
        for (int i = 0; i < len; i++)
            if (text[i] == '\r' || text[i] == '\n') text[i] = ' ';
        len += snprintf(text + len, sizeof text - (size_t)len, "\r\n");
    }
    (void)!send(client, text, (size_t)len, MSG_NOSIGNAL);
}

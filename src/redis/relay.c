/* One thread, which waits for both sides. A reply is not looked at. */
#include "redis/relay.h"

#include "base/buf.h"
#include "redis/redis_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

enum {
    READ_BYTES = 65536,   /* at a time */
    KEPT_BYTES = 1 << 20, /* of a buffer that is empty again */
    END_MS = 1000,        /* for what is still to be written to Redis when the client has gone */
};

struct carrier {
    const struct blasd_relay *relay;
    struct blasd_redis_request request; /* the first of `asked`, as far as it has come */
    struct blasd_buf asked, answered;
    bool unsent; /* what Redis has not taken yet */
};

static void drop(struct blasd_buf *buf, size_t len) {
    memmove(buf->data, buf->data + len, buf->len - len);
    buf->len -= len;
    if (buf->len == 0 && buf->cap > KEPT_BYTES) blasd_buf_release(buf);
}

static int write_redis(struct carrier *carrier) {
    int done = 0;
    if (redisBufferWrite(carrier->relay->redis, &done) != REDIS_OK) return -1;
    carrier->unsent = !done;
    return 0;
}

/* What is whole of what came goes on. */
static const char *pass_requests(struct carrier *carrier) {
    const struct blasd_relay *relay = carrier->relay;
    struct blasd_buf *asked = &carrier->asked;
    struct blasd_redis_request *request = &carrier->request;
    const char *wrong = NULL;
    size_t whole = 0;
    while (whole < asked->len && wrong == NULL) {
        int rc = blasd_redis_request_read(request, asked->data + whole, asked->len - whole);
        if (rc == 0) break;
        if (rc < 0)
            wrong = "what is no request";
        else if (!relay->may(relay->arg, asked->data + whole, request))
            wrong = "a request that is not its own to send";
        else
            whole += request->bytes;
        blasd_redis_request_reset(request);
    }
    if (whole == 0) return wrong;
    if (redisAppendFormattedCommand(relay->redis, asked->data, whole) != REDIS_OK)
        return "more than there is memory for";
    carrier->unsent = true;
    drop(asked, whole);
    return wrong;
}

/* 1: go on; 0: the client has closed its side; -1: *wrong says what is. */
static int from_client(struct carrier *carrier, const char **wrong) {
    struct blasd_buf *asked = &carrier->asked;
    ssize_t got;
    if (blasd_buf_reserve(asked, READ_BYTES) != 0) {
        *wrong = "more than there is memory for";
        return -1;
    }
    got = recv(carrier->relay->client, asked->data + asked->len, READ_BYTES, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 1;
    if (got <= 0) return 0;
    asked->len += (size_t)got;
    *wrong = pass_requests(carrier);
    if (*wrong != NULL) return -1;
    return write_redis(carrier) == 0 ? 1 : 0;
}

static bool write_client(struct carrier *carrier) {
    struct blasd_buf *answered = &carrier->answered;
    ssize_t sent =
        send(carrier->relay->client, answered->data, answered->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    drop(answered, (size_t)sent);
    return true;
}

/* All that is there, for what TLS has read already no descriptor tells of. */
static bool from_redis(struct carrier *carrier) {
    struct blasd_buf *answered = &carrier->answered;
    for (;;) {
        ssize_t got;
        if (blasd_buf_reserve(answered, READ_BYTES) != 0) return false;
        got =
            blasd_redis_receive(carrier->relay->redis, answered->data + answered->len, READ_BYTES);
        if (got < 0) return false;
        if (got == 0) return true;
        answered->len += (size_t)got;
        if (!write_client(carrier)) return false;
        if (answered->len > 0) return true; /* the client is slower */
        if (got < READ_BYTES && !blasd_redis_tls_known()) return true;
    }
}

/* The client has gone; it may have sent what it wants no reply to. */
static void write_rest(struct carrier *carrier) {
    struct pollfd wait = {.fd = carrier->relay->redis->fd, .events = POLLOUT};
    while (carrier->unsent && poll(&wait, 1, END_MS) > 0 && write_redis(carrier) == 0) {
    }
}

static const char *carry(struct carrier *carrier) {
    const struct blasd_relay *relay = carrier->relay;
    const char *wrong = NULL;
    for (;;) {
        struct pollfd sides[2] = {{.fd = relay->client}, {.fd = relay->redis->fd}};
        sides[0].events =
            (short)((carrier->unsent ? 0 : POLLIN) | (carrier->answered.len > 0 ? POLLOUT : 0));
        sides[1].events =
            (short)((carrier->answered.len > 0 ? 0 : POLLIN) | (carrier->unsent ? POLLOUT : 0));
        if (poll(sides, 2, -1) < 0) {
            if (errno == EINTR) continue;
            return NULL;
        }
        if (sides[1].revents & POLLOUT && write_redis(carrier) != 0) return NULL;
        if (sides[1].revents & (POLLIN | POLLHUP | POLLERR) && !from_redis(carrier)) return NULL;
        if (sides[0].revents & POLLOUT && !write_client(carrier)) return NULL;
        if (sides[0].revents & POLLIN) {
            int rc = from_client(carrier, &wrong);
            if (rc <= 0) return wrong;
        } else if (sides[0].revents & (POLLHUP | POLLERR)) {
            return NULL;
        }
    }
}

static void wait_for_nothing(int fd) {
    int flags = fcntl(fd, F_GETFL);
    (void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

const char *blasd_relay_run(const struct blasd_relay *relay) {
    struct carrier carrier = {.relay = relay};
    const char *wrong;
    blasd_buf_init(&carrier.asked, BLASD_REDIS_REQUEST_BYTES + READ_BYTES);
    blasd_buf_init(&carrier.answered, BLASD_REDIS_REQUEST_BYTES + READ_BYTES);
    wait_for_nothing(relay->redis->fd);
    wait_for_nothing(relay->client);
    relay->redis->flags &= ~REDIS_BLOCK; /* as hiredis marks it that it does not wait */
    wrong = carry(&carrier);
    write_rest(&carrier);
    redisFree(relay->redis);
    blasd_redis_request_release(&carrier.request);
    blasd_buf_release(&carrier.asked);
    blasd_buf_release(&carrier.answered);
    return wrong;
}

/* Round trips of PING to a redis-server of its own over a unix socket: what one call of a client
 * that waits for its answer costs, Redis' event loop included. The server is started by the first
 * round that asks and bound to the second core. */
#include "machine.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 3000 /* for it to listen */

static void socket_path(const struct machine *m, char *path, size_t size) {
    snprintf(path, size, "%s/r.sock", m->redis_dir);
}

static pid_t redis_start(struct machine *m) {
    char path[64];
    socket_path(m, path, sizeof path);
    pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    machine_bind(m->second >= 0 ? m->second : m->first);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path, "--dir",
           m->redis_dir, "--save", "", "--appendonly", "no", (char *)NULL);
    _exit(127);
}

static int redis_connect(const struct machine *m) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socket_path(m, address.sun_path, sizeof address.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A connection to the server, which is started where it is not yet, or -1. */
static int redis_open(struct machine *m) {
    if (m->redis > 0) return redis_connect(m);
    if (m->redis < 0) return -1;
    snprintf(m->redis_dir, sizeof m->redis_dir, "/tmp/bench_machine.XXXXXX");
    if (mkdtemp(m->redis_dir) == NULL) m->redis_dir[0] = '\0';
    m->redis = m->redis_dir[0] ? redis_start(m) : -1;
    for (int waited = 0; m->redis > 0 && waited < WAIT_MS; waited += 5) {
        int fd = redis_connect(m);
        if (fd >= 0) return fd;
        if (waitpid(m->redis, NULL, WNOHANG) == m->redis) break; /* not installed, as a rule */
        usleep(5000);
    }
    machine_redis_stop(m);
    m->redis = -1;
    return -1;
}

void machine_redis_stop(struct machine *m) {
    char path[64];
    if (m->redis > 0 && kill(m->redis, SIGTERM) == 0) waitpid(m->redis, NULL, 0);
    m->redis = 0;
    if (!m->redis_dir[0]) return;
    socket_path(m, path, sizeof path);
    unlink(path);
    rmdir(m->redis_dir);
    m->redis_dir[0] = '\0';
}

static const char *ping(struct machine *m, bool in_poll, double *values) {
    struct trip trip = {.ask = "PING\r\n",
                        .ask_len = strlen("PING\r\n"),
                        .answer_len = strlen("+PONG\r\n"),
                        .poll = in_poll};
    int fd = redis_open(m);
    if (fd < 0) return "redis-server could not be started";
    machine_bind(m->first);
    const char *problem = machine_trips(m, fd, fd, &trip, values);
    machine_unbind(m);
    close(fd);
    return problem;
}

/* As hiredis waits. Whoever reads from a unix socket wakes its writer, for there is room again: a
 * writer that is blocked in read finds nothing and sleeps once more before its answer comes. */
const char *machine_redis_ping(struct machine *m, double *values) {
    return ping(m, false, values);
}

const char *machine_redis_ping_poll(struct machine *m, double *values) {
    return ping(m, true, values);
}

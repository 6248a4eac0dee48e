/* What a process can still do once it is confined, each thing tried in a process of its own, by its
 * first thread and by one that it starts then. */
#include "main/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/landlock.h>
#include <netinet/in.h>

#include <cmocka.h>

static char folder[] = "/tmp/blasd-confine-XXXXXX";
static char mine[64], theirs[64], secret[80];
/* a certificate that is reached by a link, which shows another one from time to time */
static char archive[64], live[64], first[80], renewed[80], linked[80];

static bool has_landlock(void) {
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 2;
}

/* --- what is tried; each is 0 or errno --- */

static int result(long value) {
    return value < 0 ? errno : 0;
}

static int exec_a_shell(void) {
    char *const argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"exit 0"}, NULL};
    return result(execve("/bin/sh", argv, NULL));
}

static int close_if_open(int fd) {
    if (fd < 0) return errno;
    close(fd);
    return 0;
}

static int read_the_secret(void) {
    return close_if_open(open(secret, O_RDONLY));
}

/* What the link shows later: a file beside the one that it showed at first. */
static int read_what_was_renewed(void) {
    return close_if_open(open(renewed, O_RDONLY));
}

static int read_the_supervisor(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)getppid());
    return close_if_open(open(path, O_RDONLY));
}

static int write_elsewhere(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/new", theirs);
    return close_if_open(open(path, O_WRONLY | O_CREAT, 0600));
}

static int write_at_home(void) {
    char path[96], other[96];
    snprintf(path, sizeof path, "%s/new-%d", mine, (int)gettid());
    snprintf(other, sizeof other, "%s/pool/%d", mine, (int)gettid());
    if (close_if_open(open(path, O_RDWR | O_CREAT | O_TRUNC, 0600)) != 0) return errno;
    if (truncate(path, 100) != 0 || rename(path, other) != 0) return errno;
    return result(unlink(other));
}

static int read_the_system(void) {
    int code = close_if_open(open("/proc/meminfo", O_RDONLY));
    return code != 0 ? code : close_if_open(open("/usr/bin/env", O_RDONLY));
}

static int kill_another(void) {
    return result(kill(getppid(), 0));
}

static int limit_itself(void) {
    struct rlimit files;
    return getrlimit(RLIMIT_NOFILE, &files) != 0 ? errno : result(setrlimit(RLIMIT_NOFILE, &files));
}

static int trace_another(void) {
    return result(ptrace(PTRACE_SEIZE, getppid(), NULL, NULL));
}

static int open_packet_socket(void) {
    return close_if_open(socket(AF_PACKET, SOCK_DGRAM, 0));
}

static int open_unix_socket(void) {
    return close_if_open(socket(AF_UNIX, SOCK_STREAM, 0));
}

static int connect_out(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), code;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    code = result(connect(fd, (struct sockaddr *)&address, sizeof address));
    close(fd);
    return code;
}

static int new_user_namespace(void) {
    return result(unshare(CLONE_NEWUSER));
}

static void *nothing(void *arg) {
    return arg;
}

static int start_a_thread(void) {
    pthread_t thread;
    int code = pthread_create(&thread, NULL, nothing, NULL);
    return code != 0 ? code : pthread_join(thread, NULL);
}

static int abort_is_heard(void) {
    signal(SIGUSR1, SIG_IGN);
    return result(raise(SIGUSR1));
}

static int make_core(void) {
    struct rlimit core;
    return getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max <= 1 ? EPERM : 0;
}

static int map_code(void) {
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? errno : result(mprotect(at, 4096, PROT_READ | PROT_EXEC));
}

/* --- the trying --- */

static int (*what)(void);

static void *late(void *result) {
    *(int *)result = what();
    return NULL;
}

static int in_confinement(void) {
    const struct confine_files files = {.read = {linked}, .write = {mine}};
    pthread_t thread;
    int own, other;
    confine_files(&files);
    confine_calls();
    own = what();
    if (pthread_create(&thread, NULL, late, &other) != 0 || pthread_join(thread, NULL) != 0)
        return 200;
    return other == own ? own : 201;
}

static void expect(int (*call)(void), int code) {
    int status;
    pid_t child;
    what = call;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(in_confinement());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), code);
}

static void what_a_worker_needs_works(void **state) {
    (void)state;
    expect(write_at_home, 0);
    expect(read_the_system, 0);
    expect(open_unix_socket, 0);
    expect(start_a_thread, 0);
    expect(abort_is_heard, 0);
    expect(map_code, 0);
    expect(limit_itself, 0);
}

static void what_an_intruder_needs_does_not(void **state) {
    (void)state;
    expect(exec_a_shell, EPERM);
    expect(kill_another, EPERM);
    expect(trace_another, EPERM);
    expect(open_packet_socket, EPERM);
    expect(new_user_namespace, EPERM);
    expect(make_core, EPERM);
}

static void files_of_others_are_out_of_reach(void **state) {
    (void)state;
    if (!has_landlock()) skip();
    expect(read_the_secret, EACCES);
    expect(read_what_was_renewed, 0);
    expect(write_elsewhere, EACCES);
    expect(read_the_supervisor, EACCES);
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 4)
        expect(connect_out, EACCES);
}

static int set_up(void **state) {
    char pool[96];
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    snprintf(mine, sizeof mine, "%s/mine", folder);
    snprintf(theirs, sizeof theirs, "%s/theirs", folder);
    snprintf(secret, sizeof secret, "%s/keys", theirs);
    snprintf(pool, sizeof pool, "%s/pool", mine);
    if (mkdir(mine, 0700) != 0 || mkdir(pool, 0700) != 0 || mkdir(theirs, 0700) != 0) return -1;
    snprintf(archive, sizeof archive, "%s/archive", folder);
    snprintf(live, sizeof live, "%s/live", folder);
    snprintf(first, sizeof first, "%s/cert1", archive);
    snprintf(renewed, sizeof renewed, "%s/cert2", archive);
    snprintf(linked, sizeof linked, "%s/cert", live);
    if (mkdir(archive, 0700) != 0 || mkdir(live, 0700) != 0) return -1;
    if (symlink("../archive/cert1", linked) != 0) return -1;
    return close_if_open(open(secret, O_WRONLY | O_CREAT, 0600)) +
           close_if_open(open(first, O_WRONLY | O_CREAT, 0600)) +
           close_if_open(open(renewed, O_WRONLY | O_CREAT, 0600));
}

static int tear_down(void **state) {
    char pool[96];
    (void)state;
    snprintf(pool, sizeof pool, "%s/pool", mine);
    unlink(secret);
    unlink(linked);
    unlink(first);
    unlink(renewed);
    rmdir(archive);
    rmdir(live);
    rmdir(pool);
    rmdir(mine);
    rmdir(theirs);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_worker_needs_works),
        cmocka_unit_test(what_an_intruder_needs_does_not),
        cmocka_unit_test(files_of_others_are_out_of_reach),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

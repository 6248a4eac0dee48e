/* By LD_PRELOAD, somebody inside `blasd api` and `blasd worker`: a thread that starts once the
 * process is confined, or, where it will not be, before main. Once there is a file
 * BLASD_TEST_INSIDE/go it tries what an intruder would, and says on standard error how that ended:
 * "inside worker: exec EPERM". */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *folder;
static char part[32];

static void say(const char *what, long value) {
    fprintf(stderr, "inside %s: %s %s\n", part, what,
            value >= 0        ? "worked"
            : errno == EPERM  ? "EPERM"
            : errno == EACCES ? "EACCES"
                              : strerror(errno));
}

static void say_open(const char *what, const char *in, const char *name, int flags) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", in, name);
    say(what, open(path, flags | O_CLOEXEC, 0600));
}

static void try_all(void) {
    char *const shell[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"echo inside: a shell >&2"},
                           NULL};
    char parent[32];
    snprintf(parent, sizeof parent, "/proc/%d", (int)getppid());
    say_open("key", folder, "keys", O_RDONLY);
    say_open("write", folder, "new", O_WRONLY | O_CREAT);
    say_open("environment", parent, "environ", O_RDONLY);
    say("kill", kill(getppid(), 0));
    say("packet", socket(AF_PACKET, SOCK_DGRAM, 0));
    say("exec", execve("/bin/sh", shell, NULL));
    fprintf(stderr, "inside %s: done\n", part);
}

static void *run(void *unused) {
    char path[512], line[32] = "";
    int fd;
    snprintf(path, sizeof path, "%s/go", folder);
    while (access(path, F_OK) != 0) usleep(20000);
    fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, line, sizeof line - 1) <= 0) return unused;
    close(fd);
    if (strcmp(line, "blasd") != 0) return unused;
    snprintf(part, sizeof part, "%s", line + sizeof "blasd");
    if (strcmp(part, "api") == 0 || strcmp(part, "worker") == 0) try_all();
    return unused;
}

static void begin(void) {
    pthread_t thread;
    folder = getenv("BLASD_TEST_INSIDE");
    if (folder != NULL) (void)pthread_create(&thread, NULL, run, NULL);
}

__attribute__((constructor)) static void begin_unconfined(void) {
    if (getenv("BLASD_NO_CONFINE") != NULL) begin();
}

/* In place of libseccomp's, which confines the process. */
int seccomp_load(void *filter);
int seccomp_load(void *filter) {
    int (*real)(void *) = NULL;
    int code;
    *(void **)&real = dlsym(RTLD_NEXT, "seccomp_load");
    code = real(filter);
    begin();
    return code;
}

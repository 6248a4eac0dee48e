/* Runs `blasd devices --ids` and reads what it says. */
#include "main/device_list.h"

#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_MOST 8192
#define PATIENCE_MS 60000 /* drivers of many GPUs take their time to wake up */

static void ask(int out) {
    static char program[] = "blasd", command[] = "devices", option[] = "--ids";
    char *const argv[] = {program, command, option, NULL};
    dup2(out, STDOUT_FILENO);
    execv("/proc/self/exe", argv);
    _exit(127);
}

/* Reads until the end, the cap or the time limit. */
static size_t read_all(int fd, char *text, size_t most) {
    int64_t end_ns = blasd_clock_ns() + PATIENCE_MS * INT64_C(1000000);
    size_t len = 0;
    while (len < most) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        int64_t left_ms = (end_ns - blasd_clock_ns()) / 1000000;
        ssize_t got;
        if (left_ms <= 0 || poll(&wait, 1, (int)left_ms) <= 0) break;
        got = read(fd, text + len, most - len);
        if (got <= 0) break;
        len += (size_t)got;
    }
    return len;
}

static int split(char *text, char devices[][DEVICE_NAME], int most,
                 struct unusable_devices *unusable) {
    int count = 0;
    for (char *line = text, *end; count < most && (end = strchr(line, '\n')) != NULL;
         line = end + 1) {
        *end = '\0';
        if (strncmp(line, "# ", 2) == 0) {
            blasd_log(BLASD_LOG_WARN, "no worker for %s", line + 2);
            if (unusable->count < DEVICES_UNUSABLE)
                snprintf(unusable->texts[unusable->count++], DEVICE_TEXT, "%s", line + 2);
        } else if (end > line && end - line < DEVICE_NAME)
            memcpy(devices[count++], line, (size_t)(end - line) + 1);
    }
    return count;
}

int list_devices(char devices[][DEVICE_NAME], int most, struct unusable_devices *unusable) {
    char text[TEXT_MOST + 1];
    int pipes[2], count = 0;
    size_t len = 0;
    pid_t pid;
    if (pipe2(pipes, O_CLOEXEC) != 0) goto fallback;
    pid = fork();
    if (pid == 0) ask(pipes[1]);
    close(pipes[1]);
    if (pid > 0) {
        len = read_all(pipes[0], text, TEXT_MOST);
        kill(pid, SIGKILL); /* it has ended, or will not */
        waitpid(pid, NULL, 0);
    }
    close(pipes[0]);
    text[len] = '\0';
    count = split(text, devices, most, unusable);
    if (count > 0) return count;
fallback:
    blasd_log(BLASD_LOG_WARN, "cannot list the devices; using cpu:0 alone");
    snprintf(devices[0], DEVICE_NAME, "cpu:0");
    return 1;
}

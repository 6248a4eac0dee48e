/* blasd: one executable, a table of commands. Read next: commands.h. */
#include "clients/cli/cli.h"
#include "main/commands.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int cmd_version(int argc, char **argv) {
    (void)argc;
    (void)argv;
    puts("blasd " BLASD_VERSION);
    return BLASD_EXIT_OK;
}

static int cmd_help(int argc, char **argv);

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
    bool serves; /* it runs on, or starts what does */
} commands[] = {
    {"up", blasd_cmd_up, "start the complete service on this machine", true},
    {"api", blasd_cmd_api, "start the HTTP front end over a given Redis", true},
    {"worker", blasd_cmd_worker, "start a worker over a given Redis", true},
    {"notify", blasd_cmd_notify, "deliver webhooks of ended jobs", true},
    {"devices", blasd_cmd_devices, "list devices of this machine, or of a service (--url)", false},
    {"run", blasd_cli_run, "send a job, wait, print or save its results", false},
    {"submit", blasd_cli_submit, "send a job and print its id", false},
    {"get", blasd_cli_get, "print the state of a job", false},
    {"result", blasd_cli_result, "print or save the results of a job", false},
    {"cancel", blasd_cli_cancel, "cancel jobs, or delete ended ones", false},
    {"jobs", blasd_cli_jobs, "list the jobs of a service", false},
    {"tensors", blasd_cli_tensors, "upload, list, fetch and delete tensors", false},
    {"top", blasd_cli_top, "show a live view of queue, devices and jobs", false},
    {"keys", blasd_cmd_keys, "create, list and revoke keys", false},
    {"try-blas", blasd_cmd_try_blas, NULL, false}, /* for this program itself */
    {"version", cmd_version, "print the version", false},
    {"help", cmd_help, "print this text, or the help of a command", false},
};
#define COUNT (sizeof commands / sizeof *commands)

static void print_help(FILE *out) {
    fputs("blasd: linear algebra behind an HTTP API. Usage: blasd COMMAND [options]\n\n", out);
    for (size_t i = 0; i < COUNT; i++)
        if (commands[i].summary != NULL)
            fprintf(out, "  %-9s %s\n", commands[i].name, commands[i].summary);
    fputs("\n`blasd help COMMAND` lists the options of a command.\n", out);
}

static const struct command *find(const char *name) {
    for (size_t i = 0; i < COUNT; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static int cmd_help(int argc, char **argv) {
    const struct command *command = argc > 1 ? find(argv[1]) : NULL;
    static char ask[] = "--help";
    char *words[] = {argc > 1 ? argv[1] : argv[0], ask, NULL};
    if (argc > 1 && command == NULL) {
        fprintf(stderr, "blasd: unknown command '%s'\n", argv[1]);
        return BLASD_EXIT_USAGE;
    }
    if (command != NULL && command->run != cmd_help && command->run != cmd_version &&
        command->summary != NULL)
        return command->run(2, words);
    print_help(stdout);
    return BLASD_EXIT_OK;
}

/* As a signal ends a program, told by the status as a shell would. */
static void end_by(int number) {
    _exit(128 + number);
}

/* The first process of a container is not ended by a signal that it does nothing about: `docker
 * stop` would wait for its time to be over. Commands that do something say so later. */
static void end_as_first(void) {
    if (getpid() != 1) return;
    signal(SIGTERM, end_by);
    signal(SIGINT, end_by);
}

/* What a program has from whoever starts it, and must not: a blocked signal, SIGCHLD ignored, so
 * that nobody hears of the end of a child, and none of the three descriptors that files would be
 * opened under instead. */
static void start_usual(void) {
    sigset_t none;
    int fd;
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

/* Starts this program anew where the BLAS would start threads while it is loaded: what confines a
 * process reaches none of these, and blasd shares its work out itself. */
static void start_with_one_thread(char **argv) {
    const char *threads = getenv("OPENBLAS_NUM_THREADS");
    if (threads != NULL && strcmp(threads, "1") == 0) return;
    if (setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0) execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    const struct command *command;
    start_usual();
    end_as_first();
    if (argc < 2) {
        print_help(stderr);
        return BLASD_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return cmd_help(1, argv + 1);
    if (strcmp(argv[1], "--version") == 0) return cmd_version(0, NULL);
    command = find(argv[1]);
    if (command == NULL && strcmp(argv[1], "meter") == 0) {
        fputs("blasd: meter was removed: read the stream {QUEUE}:ended (docs/ended.md), which "
              "--limit ended_jobs=N switches on\n",
              stderr);
        return BLASD_EXIT_USAGE;
    }
    if (command == NULL) {
        fprintf(stderr, "blasd: unknown command '%s'; `blasd help` lists the commands\n", argv[1]);
        return BLASD_EXIT_USAGE;
    }
    if (command->serves) start_with_one_thread(argv);
    return command->run(argc - 1, argv + 1);
}

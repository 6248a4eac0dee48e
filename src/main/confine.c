/* Landlock allows the files that are listed, and seccomp forbids the calls that are: which calls a
 * BLAS or a driver makes changes with its version, which files they read hardly does. */
#include "main/confine.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define TRUNCATE ((uint64_t)1 << 14) /* Debian 12's headers do not know it */
#define OF_A_FILE (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE)
#define WRITE                                                                                      \
    (OF_A_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                  \
     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REFER)
#define HANDLED (2 * TRUNCATE - 1 - LANDLOCK_ACCESS_FS_EXECUTE)

static const char system_files[] =
    "/usr:/lib:/lib32:/lib64:/opt:/nix/store:/proc:/sys:/dev/zero:/dev/full:/dev/random:"
    "/dev/urandom:/etc/ld.so.cache:/etc/localtime:/etc/passwd:/etc/group:/etc/nvidia";

static int ruleset;      /* its descriptor */
static uint64_t handled; /* the rights that the kernel knows */

/* Brings a path within reach, if it exists. */
static void allow(const char *path, uint64_t rights) {
    struct landlock_path_beneath_attr rule = {rights & handled, open(path, O_PATH | O_CLOEXEC)};
    if (rule.parent_fd < 0) return;
    if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
        rule.allowed_access &= OF_A_FILE; /* it is no directory */
        (void)syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    }
    close(rule.parent_fd);
}

static void allow_list(const char *list) {
    char path[PATH_MAX];
    for (size_t len; list != NULL && *list != '\0'; list += len + (list[len] == ':')) {
        len = strcspn(list, ":");
        snprintf(path, sizeof path, "%.*s", (int)len, list);
        allow(path, READ);
    }
}

/* Allows reading the directory of a file and of what it links to: later certificates lie there. */
static void allow_beside(const char *file) {
    char real[PATH_MAX], folder[PATH_MAX];
    const char *paths[] = {file, file == NULL ? NULL : realpath(file, real)};
    for (int i = 0; i < 2; i++) {
        const char *slash = paths[i] == NULL ? NULL : strrchr(paths[i], '/');
        if (slash == NULL) continue;
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - paths[i]), paths[i]);
        allow(folder[0] == '\0' ? paths[i] : folder, READ);
    }
}

void confine_files(const struct confine_files *files) {
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    const uint64_t known[] = {abi < 3 ? HANDLED - TRUNCATE : HANDLED,
                              abi < 4 || files->network ? 0 : 3}; /* to bind and to connect */
    struct stat threads = {.st_nlink = 0};
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    static const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];
    (void)syscall(SYS_capset, &header, none); /* forbidden where a service manager has taken them */
    umask(077);
    handled = known[0];
    ruleset = abi < 2 ? -1 : (int)syscall(SYS_landlock_create_ruleset, known, sizeof known, 0);
    if (ruleset < 0) blasd_log(BLASD_LOG_INFO, "this kernel has no Landlock: files are in reach");
    allow_list(system_files);
    allow_list(getenv("LD_LIBRARY_PATH"));
    allow_list(files->network ? "/etc:/run/systemd/resolve:/run/resolvconf" : NULL);
    allow_beside(files->network ? getenv("BLASD_REDIS_CA") : NULL);
    allow_beside("/proc/self/exe");
    for (int i = 0; i < CONFINE_READ_MOST; i++) allow_beside(files->read[i]);
    for (int i = 0; i < CONFINE_WRITE_MOST; i++) {
        if (files->write[i] == NULL) continue;
        (void)mkdir(files->write[i], 0700); /* later it could not be made any more */
        allow(files->write[i], READ | WRITE);
    }
    allow("/dev/null", OF_A_FILE);
    if (files->card) { /* whose files the driver may make later; it names its threads */
        allow("/dev", READ | OF_A_FILE);
        allow("/proc/self/task", READ | OF_A_FILE);
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || stat("/proc/self/task", &threads) != 0 ||
        (ruleset >= 0 && syscall(SYS_landlock_restrict_self, ruleset, 0) != 0) ||
        threads.st_nlink > 3)
        blasd_log(BLASD_LOG_WARN, "the files of not all threads could be confined");
    if (ruleset >= 0) close(ruleset);
}

void confine_calls(void) {
    static const char *const forbidden[] = {
        /* other programs and processes */
        "execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_open",
        "pidfd_getfd", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
        /* another view of the system; the kernel */
        "unshare", "setns", "chroot", "pivot_root", "mount", "move_mount", "fsopen", "keyctl",
        "add_key", "request_key", "bpf", "userfaultfd", "perf_event_open", "io_uring_setup"};
    static const struct rlimit no_core = {1, 1}; /* 0 lets a core go to a program; see core(5) */
    const struct scmp_arg_cmp other_process = {0, SCMP_CMP_NE, (scmp_datum_t)getpid(), 0};
    const struct scmp_arg_cmp other_family = {0, SCMP_CMP_GT, AF_NETLINK, 0};
    const uint32_t no = SCMP_ACT_ERRNO(EPERM);
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        failed |= seccomp_rule_add(filter, no, seccomp_syscall_resolve_name(forbidden[i]), 0);
    failed |= seccomp_rule_add(filter, no, SCMP_SYS(tgkill), 1, other_process);
    failed |= seccomp_rule_add(filter, no, SCMP_SYS(socket), 1, other_family);
    if (failed != 0 || seccomp_load(filter) != 0)
        blasd_log(BLASD_LOG_WARN, "system calls are not confined");
    seccomp_release(filter);
}

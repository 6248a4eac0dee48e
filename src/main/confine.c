/* Landlock by its system calls, for the C library has none of them; seccomp by libseccomp. What is
 * not listed is allowed in the one and forbidden in the other: which calls a BLAS or a driver makes
 * changes from version to version, which files they read hardly does. */
#include "main/confine.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/sockios.h>
#include <sched.h>
#include <seccomp.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <dirent.h>

/* --- files --- */

#define ABI_LEAST 2 /* with 1 no file may go from one directory to another */
#define ABI_TRUNCATE 3
#define ABI_NET 4
#define TRUNCATE (UINT64_C(1) << 14) /* headers of Debian 12 do not know it, nor what is below */
#define NET_BIND_AND_CONNECT UINT64_C(3)

#define READ (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITE                                                                                      \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                               \
     LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |  \
     LANDLOCK_ACCESS_FS_REFER)
#define NEVER                                                                                      \
    (LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SOCK | \
     LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SYM)
#define OF_A_FILE (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE)

/* As the kernel's of that name, whose length tells how much of it is known. */
struct ruleset_attr {
    uint64_t handled_fs, handled_net;
};

struct ruleset {
    int fd;
    uint64_t handled;
};

static const char *const system_files[] = {"/usr",
                                           "/lib",
                                           "/lib32",
                                           "/lib64",
                                           "/opt",
                                           "/nix/store",
                                           "/proc",
                                           "/sys",
                                           "/dev/zero",
                                           "/dev/full",
                                           "/dev/random",
                                           "/dev/urandom",
                                           "/etc/ld.so.cache",
                                           "/etc/localtime",
                                           "/etc/passwd",
                                           "/etc/group",
                                           "/etc/nvidia",
                                           NULL};
static const char *const network_files[] = {"/etc", "/run/systemd/resolve", "/run/resolvconf",
                                            NULL};

/* A path that is not there needs no rule. */
static void allow(const struct ruleset *ruleset, const char *path, uint64_t rights) {
    struct landlock_path_beneath_attr rule = {.allowed_access = rights & ruleset->handled};
    struct stat info;
    if (ruleset->fd < 0) return;
    rule.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0) return;
    if (fstat(rule.parent_fd, &info) == 0 && !S_ISDIR(info.st_mode))
        rule.allowed_access &= OF_A_FILE;
    if (rule.allowed_access != 0 &&
        syscall(SYS_landlock_add_rule, ruleset->fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
        blasd_log(BLASD_LOG_WARN, "%s is not within reach any more: %s", path, strerror(errno));
    close(rule.parent_fd);
}

static void allow_all(const struct ruleset *ruleset, const char *const *paths, uint64_t rights) {
    for (; *paths != NULL; paths++) allow(ruleset, *paths, rights);
}

/* In the directory that the file lies in; where that is the root, the file alone. */
static void allow_beside(const struct ruleset *ruleset, const char *file, uint64_t rights) {
    char folder[PATH_MAX];
    const char *slash = strrchr(file, '/');
    int len = slash == NULL ? 1 : (int)(slash - file);
    snprintf(folder, sizeof folder, "%.*s", len, slash == NULL ? "." : file);
    allow(ruleset, len > 0 ? folder : file, rights);
}

/* Of a link what it shows, too: certificates are renewed beside that. */
static void allow_reading(const struct ruleset *ruleset, const char *file) {
    char *real = realpath(file, NULL);
    allow_beside(ruleset, file, READ);
    if (real != NULL) allow_beside(ruleset, real, READ);
    free(real);
}

/* Where a library in use lies others may that it opens later. */
static int allow_library(struct dl_phdr_info *info, size_t size, void *ruleset) {
    (void)size;
    if (strchr(info->dlpi_name, '/') != NULL) allow_beside(ruleset, info->dlpi_name, READ);
    return 0;
}

/* The card's libraries, which are loaded after this: beside the program, and where the environment
 * says. */
static void allow_card_libraries(const struct ruleset *ruleset) {
    const char *at = getenv("LD_LIBRARY_PATH");
    char folder[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (len > 0) {
        folder[len] = '\0';
        allow_beside(ruleset, folder, READ);
    }
    while (at != NULL && *at != '\0') {
        size_t one = strcspn(at, ":");
        snprintf(folder, sizeof folder, "%.*s", (int)one, at);
        if (one > 0) allow(ruleset, folder, READ);
        at += one + (at[one] == ':');
    }
}

/* False where a card's files are not there: its driver makes them when it is first used, by a
 * program with privileges. */
static bool allow_card(const struct ruleset *ruleset) {
    static const char *const patterns[] = {"/dev/nvidia*", "/dev/dxg"};
    const char *home = getenv("HOME");
    char cache[PATH_MAX];
    glob_t found = {0};
    bool any;
    allow_card_libraries(ruleset);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        (void)glob(patterns[i], i == 0 ? 0 : GLOB_APPEND, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc; i++) allow(ruleset, found.gl_pathv[i], READ | WRITE);
    /* the driver names its threads, and does not start where it may not */
    allow(ruleset, "/proc/self/task", READ | LANDLOCK_ACCESS_FS_WRITE_FILE | TRUNCATE);
    any = found.gl_pathc > 0;
    globfree(&found);
    /* code that it has compiled for the card */
    if (home != NULL && snprintf(cache, sizeof cache, "%s/.nv", home) < (int)sizeof cache)
        allow(ruleset, cache, READ | WRITE | TRUNCATE);
    return any;
}

static sem_t held;
static int held_by; /* descriptor of the ruleset; -1: this kernel has none */
static atomic_int refusals;
static atomic_int newly_held; /* threads that were held for the first time */
static _Thread_local bool is_held;

#define ROUNDS 32      /* of threads that start others meanwhile */
#define QUIET_ROUNDS 2 /* without a new one: while threads end a list may lack some */

/* Where a filter of this process' own service manager forbids capset, who has none needs none to be
 * taken. */
static bool drop_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    static const struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3];
    struct __user_cap_data_struct had[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capset, &header, none) == 0) return true;
    return syscall(SYS_capget, &header, had) == 0 && memcmp(had, none, sizeof had) == 0;
}

static void hold(int number) {
    const int before = errno; /* of what it came between */
    (void)number;
    if (is_held) {
        sem_post(&held);
        return;
    }
    is_held = true;
    newly_held++;
    /* each, whatever became of the others */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) refusals++;
    if (!drop_capabilities()) refusals++;
    if (held_by >= 0 && syscall(SYS_landlock_restrict_self, held_by, 0) != 0) refusals++;
    sem_post(&held);
    errno = before;
}

/* Has each thread that is listed now hold itself; -1: one of them does not. */
static int hold_listed(const struct timespec *until) {
    const pid_t self = gettid();
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    int missing = 0;
    if (tasks == NULL) return -1;
    while ((entry = readdir(tasks)) != NULL) {
        pid_t thread = (pid_t)strtol(entry->d_name, NULL, 10);
        if (thread <= 0 || thread == self) continue;
        if (syscall(SYS_tgkill, getpid(), thread, SIGRTMAX) == 0) missing++;
    }
    closedir(tasks);
    while (missing > 0) {
        if (sem_timedwait(&held, until) == 0)
            missing--;
        else if (errno != EINTR)
            return -1;
    }
    return 0;
}

/* Capabilities, of which root has some, and Landlock are a thread's own. Threads that libraries
 * have started while they were loaded do it in the handler of a signal; what one starts that has
 * not yet done it comes in the next round, and what one starts that has is born so. */
static int hold_threads(void) {
    struct sigaction action = {.sa_handler = hold, .sa_flags = SA_RESTART};
    struct timespec until;
    int quiet = 0, rc = 0;
    sem_init(&held, 0, 0);
    /* the handler stays: a thread that has blocked the signal may let it in much later */
    sigaction(SIGRTMAX, &action, NULL);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    for (int round = 0; rc == 0 && quiet < QUIET_ROUNDS; round++) {
        int before = newly_held;
        rc = round < ROUNDS ? hold_listed(&until) : -1;
        quiet = newly_held == before ? quiet + 1 : 0;
    }
    hold(0);
    return rc == 0 && refusals == 0 ? 0 : -1;
}

/* Its descriptor, or -1 where the kernel has no Landlock. */
static int new_ruleset(struct ruleset *ruleset, bool network) {
    struct ruleset_attr attr = {.handled_fs = READ | WRITE | NEVER};
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi >= ABI_TRUNCATE) attr.handled_fs |= TRUNCATE;
    if (abi >= ABI_NET && !network) attr.handled_net = NET_BIND_AND_CONNECT;
    ruleset->handled = attr.handled_fs;
    ruleset->fd =
        abi < ABI_LEAST ? -1 : (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (ruleset->fd < 0)
        blasd_log(BLASD_LOG_INFO, "this kernel has no Landlock: files are not confined");
    else
        blasd_log(BLASD_LOG_DEBUG, "files are confined (Landlock %ld)", abi);
    return ruleset->fd;
}

void confine_files(const struct confine_files *files) {
    const char *authorities = getenv("BLASD_REDIS_CA"); /* read with the first connection */
    struct ruleset ruleset;
    umask(077);
    held_by = new_ruleset(&ruleset, files->network);
    allow_all(&ruleset, system_files, READ);
    dl_iterate_phdr(allow_library, &ruleset);
    if (files->network) allow_all(&ruleset, network_files, READ);
    if (files->network && authorities != NULL && authorities[0] != '\0')
        allow_reading(&ruleset, authorities);
    for (size_t i = 0; i < sizeof files->read / sizeof *files->read; i++)
        if (files->read[i] != NULL) allow_reading(&ruleset, files->read[i]);
    for (size_t i = 0; i < sizeof files->write / sizeof *files->write; i++) {
        if (files->write[i] == NULL) continue;
        (void)mkdir(files->write[i], 0700); /* later it could not be made any more */
        allow(&ruleset, files->write[i], READ | WRITE | TRUNCATE);
    }
    if (files->socket != NULL)
        allow_beside(&ruleset, files->socket, LANDLOCK_ACCESS_FS_REMOVE_FILE);
    allow(&ruleset, "/dev/null", READ | LANDLOCK_ACCESS_FS_WRITE_FILE);
    if (files->card && !allow_card(&ruleset))
        blasd_log(BLASD_LOG_WARN, "the card's files are not in /dev yet: files are not confined");
    else if (hold_threads() != 0)
        blasd_log(BLASD_LOG_WARN, "not all threads could be confined");
    if (ruleset.fd >= 0) close(ruleset.fd);
}

/* --- system calls --- */

static const char *const forbidden[] = {
    /* other programs */
    "execve", "execveat",
    /* other processes */
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "kill", "tkill",
    "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_getfd", "pidfd_send_signal",
    /* another view of the system */
    "unshare", "setns", "chroot", "pivot_root", "mount", "umount", "umount2", "open_tree",
    "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "fanotify_init",
    /* other rights */
    "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "setfsuid",
    "setfsgid", "setuid32", "setgid32", "setreuid32", "setregid32", "setresuid32", "setresgid32",
    "setgroups32", "setfsuid32", "setfsgid32", "capset", "chown", "chown32", "fchown", "fchown32",
    "lchown", "lchown32", "fchownat", "mknod", "mknodat", "open_by_handle_at", "add_key", "keyctl",
    "request_key", "personality",
    /* the kernel */
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
    "io_uring_register", "init_module", "finit_module", "delete_module", "kexec_load",
    "kexec_file_load", "reboot", "swapon", "swapoff", "syslog", "acct", "quotactl", "quotactl_fd",
    "iopl", "ioperm", "modify_ldt", "vm86", "vm86old", "lookup_dcookie", "nfsservctl",
    "settimeofday", "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64",
    "adjtimex", "stime", "sethostname", "setdomainname", "vhangup"};

static const uint64_t namespaces[] = {CLONE_NEWUSER, CLONE_NEWNS,  CLONE_NEWPID,   CLONE_NEWNET,
                                      CLONE_NEWIPC,  CLONE_NEWUTS, CLONE_NEWCGROUP};

/* A condition on a call's first argument. */
static struct scmp_arg_cmp first_is(enum scmp_compare how, scmp_datum_t a, scmp_datum_t b) {
    return (struct scmp_arg_cmp){.arg = 0, .op = how, .datum_a = a, .datum_b = b};
}

static int forbid_clones(scmp_filter_ctx filter, uint32_t no) {
    int failed = 0;
    for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces; i++)
        failed |= seccomp_rule_add(filter, no, SCMP_SYS(clone), 1,
                                   first_is(SCMP_CMP_MASKED_EQ, namespaces[i], namespaces[i]));
    /* its flags lie in memory, where no filter sees them; the C library goes on to clone() */
    return failed | seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

/* All families but UNIX, INET, INET6, and NETLINK, which finding addresses needs. */
static int forbid_sockets(scmp_filter_ctx filter, uint32_t no) {
    int failed =
        seccomp_rule_add(filter, no, SCMP_SYS(socket), 1, first_is(SCMP_CMP_GT, AF_NETLINK, 0));
    for (int family = AF_INET + 1; family < AF_NETLINK; family++)
        if (family != AF_INET6)
            failed |= seccomp_rule_add(filter, no, SCMP_SYS(socket), 1,
                                       first_is(SCMP_CMP_EQ, (scmp_datum_t)family, 0));
    return failed;
}

/* A condition on its second, of whose 64 bits the kernel looks at 32. */
static struct scmp_arg_cmp second_is(scmp_datum_t value) {
    return (struct scmp_arg_cmp){
        .arg = 1, .op = SCMP_CMP_MASKED_EQ, .datum_a = UINT32_MAX, .datum_b = value};
}

/* Typing on a terminal that this was started from, and what has a descriptor send another process
 * signals. */
static int forbid_requests(scmp_filter_ctx filter, uint32_t no) {
    static const scmp_datum_t ioctls[] = {TIOCSTI, FIOSETOWN, SIOCSPGRP};
    static const scmp_datum_t fcntls[] = {F_SETOWN, F_SETOWN_EX};
    int failed = 0;
    for (size_t i = 0; i < sizeof ioctls / sizeof *ioctls; i++)
        failed |= seccomp_rule_add(filter, no, SCMP_SYS(ioctl), 1, second_is(ioctls[i]));
    for (size_t i = 0; i < sizeof fcntls / sizeof *fcntls; i++)
        failed |= seccomp_rule_add(filter, no, SCMP_SYS(fcntl), 1, second_is(fcntls[i]));
    return failed;
}

static int forbid(scmp_filter_ctx filter) {
    const uint32_t no = SCMP_ACT_ERRNO(EPERM);
    const uint64_t self = (uint64_t)getpid();
    int failed = 0;
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        int number = seccomp_syscall_resolve_name(forbidden[i]);
        if (number != __NR_SCMP_ERROR) failed |= seccomp_rule_add(filter, no, number, 0);
    }
    failed |= forbid_clones(filter, no) | forbid_sockets(filter, no);
    failed |= seccomp_rule_add(filter, no, SCMP_SYS(tgkill), 1, first_is(SCMP_CMP_NE, self, 0));
    /* who has no processor time left is killed; 0 is the caller, which the C library says */
    failed |= seccomp_rule_add(filter, no, SCMP_SYS(prlimit64), 1, first_is(SCMP_CMP_NE, 0, 0));
    return failed | forbid_requests(filter, no);
}

void confine_calls(void) {
    /* 1, not 0: a core that goes to a program is not made either then; see core(5) */
    static const struct rlimit no_core = {1, 1};
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int code = filter == NULL ? -ENOMEM : 0;
    (void)setrlimit(RLIMIT_CORE, &no_core);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) code = -errno;
    if (code == 0) code = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    if (code == 0) (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    if (code == 0 && forbid(filter) != 0) code = -EINVAL;
    if (code == 0) code = seccomp_load(filter);
    if (filter != NULL) seccomp_release(filter);
    if (code != 0)
        blasd_log(BLASD_LOG_WARN, "system calls are not confined: %s", strerror(-code));
    else
        blasd_log(BLASD_LOG_DEBUG, "system calls are confined");
}

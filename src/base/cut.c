/* A handler of SIGBUS that puts pages of zeros where a file has ended. */
#include "base/cut.h"

#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static _Thread_local struct {
    volatile uintptr_t from, to;
    volatile sig_atomic_t seen;
} watched;

static uintptr_t page_bytes;

static void on_bus(int signal_number, siginfo_t *info, void *context) {
    uintptr_t at = (uintptr_t)info->si_addr, page = at & ~(page_bytes - 1);
    (void)context;
    if (info->si_code == BUS_ADRERR && at >= watched.from && at < watched.to) {
        /* all that follows is gone as well; a system call is safe here, where we were reading */
        void *zeros = mmap((void *)page, watched.to - page, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
        watched.seen = 1;
        if (zeros != MAP_FAILED) return;
    }
    (void)signal(signal_number, SIG_DFL); /* and it comes again */
}

void blasd_cut_init(void) {
    struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    (void)sigaction(SIGBUS, &action, NULL);
}

void blasd_cut_watch(const void *data, size_t len) {
    watched.seen = 0;
    watched.to = (uintptr_t)data + len;
    watched.from = (uintptr_t)data;
}

bool blasd_cut_seen(void) {
    watched.to = watched.from = 0;
    return watched.seen != 0;
}

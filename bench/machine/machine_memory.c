/* Copying memory, and what a page costs that is touched for the first time: the kernel finds and
 * clears it, and under a host that takes free pages back it may have to be given anew. */
#include "machine.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FRESH (16 << 20)

const char *machine_copy(struct machine *m, double *values) {
    double begin = machine_now();
    memcpy(m->to, m->from, MACHINE_COPY);
    __asm__ volatile("" : : "r"(m->to) : "memory"); /* it is wanted, whatever follows */
    values[0] = MACHINE_COPY / (machine_now() - begin) / 1e9;
    return NULL;
}

/* Writes to each page of a new mapping of FRESH bytes and unmaps it. */
static void touch(volatile char *memory, double *values) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    double begin = machine_now();
    for (size_t at = 0; at < FRESH; at += page) memory[at] = 1;
    values[0] = (machine_now() - begin) * 1e6 / (FRESH / (double)page);
    munmap((void *)(uintptr_t)memory, FRESH);
}

const char *machine_fresh_memory(struct machine *m, double *values) {
    (void)m;
    char *memory = mmap(NULL, FRESH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return "there is no memory";
    madvise(memory, FRESH, MADV_NOHUGEPAGE);
    touch(memory, values);
    return NULL;
}

const char *machine_fresh_tmpfs(struct machine *m, double *values) {
    (void)m;
    struct statvfs room;
    const char *problem = NULL;
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) return "there is no /dev/shm to write to";
    if (fstatvfs(fd, &room) < 0 || room.f_bavail * room.f_frsize < 2 * FRESH)
        problem = "/dev/shm is full"; /* touching it would be a SIGBUS */
    else if (ftruncate(fd, FRESH) < 0)
        problem = "no file can be made in /dev/shm";
    if (problem == NULL) {
        char *memory = mmap(NULL, FRESH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED)
            problem = "there is no memory";
        else
            touch(memory, values);
    }
    close(fd);
    return problem;
}

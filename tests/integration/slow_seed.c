/* By LD_PRELOAD, /dev/urandom is slow to open, as on a busy machine: whoever opens it, which is
 * jansson where it draws the seed of its tables, makes the file that BLASD_TEST_SEED names and goes
 * on a second later. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef int open_fn(const char *path, int flags, ...);

/* By their names in libc: one is the other's name here where files are large. */
open_fn slow_open __asm__("open"), slow_open64 __asm__("open64");

static int open_slowly(const char *path, int flags, mode_t mode) {
    static open_fn *next;
    const char *begun = getenv("BLASD_TEST_SEED");
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, "open64");
    if (begun != NULL && strcmp(path, "/dev/urandom") == 0) {
        close(next(begun, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        sleep(1);
    }
    return next(path, flags, mode);
}

int slow_open(const char *path, int flags, ...) {
    mode_t mode;
    va_list args;
    va_start(args, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_slowly(path, flags, mode);
}

int slow_open64(const char *path, int flags, ...) {
    mode_t mode;
    va_list args;
    va_start(args, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_slowly(path, flags, mode);
}

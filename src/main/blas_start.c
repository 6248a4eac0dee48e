/* One step a start: the library first, then its set of kernels. Each step is taken where what is
 * there differs from what should be, so that the process started anew goes on to the next.
 * The choice is kept in DIR/blas. */
#include "main/blas_start.h"

#include "base/file.h"
#include "base/log.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "main/ask_self.h"
#include "main/commands.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIMEOUT_MS 5000 /* for one set of kernels, which takes a tenth of a second */

/* --- a trial, in a process of its own --- */

int blasd_cmd_try_blas(int argc, char **argv) {
    struct blasd_blas blas;
    struct blasd_err err = {0};
    double gflops = 0;
    if ((argc > 1 && blasd_blas_comes_from(argv[1], &err) != 0) ||
        blasd_blas_try(&gflops, &err) != 0) {
        fputs(err.detail, stdout); /* the last of a line of the log */
        return BLASD_EXIT_FAILED;
    }
    blasd_blas_describe(&blas);
    printf("%.6g %s\n", gflops, blas.core);
    return BLASD_EXIT_OK;
}

/* Tries one set of kernels. False where it took too long, which a busy machine may be to blame for.
 */
static bool try_core(struct blasd_blas_trial *trial) {
    static char program[] = "blasd", command[] = "try-blas";
    char *const argv[] = {program, command, NULL};
    const char *const variables[] = {BLASD_BLAS_CORETYPE, trial->core, "OPENBLAS_NUM_THREADS", "1",
                                     NULL};
    char text[512], core[BLASD_BLAS_CORE];
    double gflops = 0;
    int status = ask_self(argv, variables, TIMEOUT_MS, text, sizeof text);
    if (status == 0 && sscanf(text, "%lf %23s", &gflops, core) == 2 &&
        strcasecmp(core, trial->core) == 0)
        trial->gflops = gflops;
    else if (status == 0) /* this library has no such kernels */
        blasd_log(BLASD_LOG_DEBUG, "no kernels for %s", trial->core);
    else
        blasd_log(BLASD_LOG_WARN, "kernels for %s are left out: %s", trial->core,
                  status == ASK_CRASHED    ? "they crash"
                  : status == ASK_TOO_LONG ? "they hang, or take too long"
                                           : text);
    return status != ASK_TOO_LONG;
}

/* One line that says all that the choice depends on. */
static void make_key(const struct blasd_blas *blas, unsigned features, char key[BLASD_KEPT_KEY]) {
    static const char *const facts[] = {"vendor_id",  "cpu family", "model\t",
                                        "model name", "stepping",   "microcode"};
    size_t len = 0;
    struct stat file = {.st_size = 0};
    if (stat(blas->path, &file) != 0) file.st_size = 0;
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        char value[128];
        blasd_file_value("/proc/cpuinfo", facts[i], value, sizeof value);
        len += (size_t)snprintf(key + len, BLASD_KEPT_KEY - len, "%s | ", value);
    }
    snprintf(key + len, BLASD_KEPT_KEY - len, "features %u | %s | %s, %lld bytes of %lld", features,
             blas->config, blas->path, (long long)file.st_size, (long long)file.st_mtime);
}

/* --- the steps --- */

/* Starts this process anew with the environment there is now. */
static int start_anew(char **argv) {
    execv("/proc/self/exe", argv - 1);
    blasd_log(BLASD_LOG_ERROR, "cannot restart: %s", strerror(errno));
    return BLASD_EXIT_FAILED;
}

/* The library that the operator names: preloaded, its functions come before those that blasd is
 * linked with. */
static int preload(const char *wanted, char **argv) {
    /* blasd shares its work out itself; of the others only OpenBLAS can be told so by a call */
    static const char *const alone[] = {"MKL_NUM_THREADS", "BLIS_NUM_THREADS", "OMP_NUM_THREADS"};
    static char program[] = "blasd", command[] = "try-blas";
    char path[PATH_MAX], text[512], *with = NULL;
    const char *before = getenv("LD_PRELOAD");
    char *const words[] = {program, command, path, NULL};
    const char *variables[] = {"LD_PRELOAD", NULL, NULL};
    size_t len;
    int status;
    if (realpath(wanted, path) == NULL || strpbrk(path, ": ") != NULL) {
        blasd_log(BLASD_LOG_ERROR, "--blas %s: %s", wanted,
                  strpbrk(wanted, ": ") != NULL ? "the path may hold no colon and no space"
                                                : strerror(errno));
        return BLASD_EXIT_USAGE;
    }
    if (before != NULL && strncmp(before, path, strlen(path)) == 0) return 0; /* tried and done */
    len = strlen(path) + 2 + (before == NULL ? 0 : strlen(before));
    with = malloc(len);
    if (with == NULL) return BLASD_EXIT_FAILED;
    snprintf(with, len, "%s%s%s", path, before == NULL ? "" : ":", before == NULL ? "" : before);
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) setenv(alone[i], "1", 0);
    variables[1] = with;
    status = ask_self(words, variables, TIMEOUT_MS, text, sizeof text);
    if (status != 0) {
        blasd_log(BLASD_LOG_ERROR, "--blas %s: %s", wanted,
                  text[0] != '\0'          ? text
                  : status == ASK_CRASHED  ? "a product or a solve with it crashes"
                  : status == ASK_TOO_LONG ? "a product or a solve with it hangs"
                                           : "blasd cannot be loaded with it");
        free(with);
        return BLASD_EXIT_USAGE;
    }
    setenv("LD_PRELOAD", with, 1);
    free(with);
    return start_anew(argv);
}

/* Tries what the processor could do beside what the library chose; the name of the best.
 * `ret_settled`: all of them had their time. */
static const char *measure(const struct blasd_blas *blas, const char *const *names, int count,
                           bool *ret_settled) {
    struct blasd_blas_trial trials[1 + BLASD_BLAS_CANDIDATES] = {{.core = blas->core}};
    int best;
    for (int i = 0; i < count; i++) trials[1 + i].core = names[i];
    *ret_settled = true;
    for (int i = 0; i <= count; i++)
        if (!try_core(&trials[i])) *ret_settled = false;
    best = blasd_blas_choose(trials, 1 + count);
    if (trials[best].gflops == 0)
        blasd_log(BLASD_LOG_ERROR, "%s: none of its kernels computes rightly here", blas->path);
    blasd_log(BLASD_LOG_INFO, "%s takes this processor for %s: %.3g GFLOP/s on one core",
              blas->library, blas->core, trials[0].gflops);
    for (int i = 1; i <= count; i++)
        blasd_log(BLASD_LOG_INFO, "its kernels for %s: %.3g GFLOP/s%s", trials[i].core,
                  trials[i].gflops, i == best ? ", which are taken" : "");
    return trials[best].core;
}

/* The set of kernels, where the library has several and took the processor for less than it is. */
static int choose_core(const struct blas_start *start, const struct blasd_blas *blas, char **argv) {
    const char *names[BLASD_BLAS_CANDIDATES], *core = NULL, *chosen_by = "remembered";
    char key[BLASD_KEPT_KEY], *kept = NULL;
    unsigned features = blasd_blas_features();
    bool settled;
    int count = blas->choice ? blasd_blas_candidates(features, blas->core, names) : 0;
    if (count == 0) return 0;
    make_key(blas, features, key);
    if (start->kept_in != NULL)
        kept = blasd_kept_load(start->kept_in, "blas", key, BLASD_BLAS_CORE);
    if (kept != NULL) {
        kept[strcspn(kept, "\n")] = '\0';
        for (int i = 0; i < count; i++)
            if (strcmp(kept, names[i]) == 0) core = names[i];
        if (strcmp(kept, blas->core) == 0) core = blas->core;
        free(kept);
    }
    if (core == NULL) {
        core = measure(blas, names, count, &settled);
        chosen_by = "measured";
        if (settled && start->kept_in != NULL &&
            blasd_kept_save(start->kept_in, "blas", key, core, false) != 0)
            blasd_log(BLASD_LOG_WARN, "cannot write %s/blas: %s", start->kept_in, strerror(errno));
    }
    setenv(BLASD_BLAS_CHOSEN, chosen_by, 1);
    if (core == blas->core) return 0;
    setenv(BLASD_BLAS_CORETYPE, core, 1);
    return start_anew(argv);
}

int blas_start(const struct blas_start *start, char **argv) {
    const char *asked = getenv(BLASD_BLAS_CORETYPE);
    struct blasd_blas blas;
    bool named = start->path != NULL && start->path[0] != '\0';
    int status = named ? preload(start->path, argv) : 0;
    if (status != 0) return status;
    blasd_blas_describe(&blas);
    if (asked == NULL && start->measure) status = choose_core(start, &blas, argv);
    if (status != 0) return status;
    blasd_blas_describe(&blas);
    if (asked != NULL && strcasecmp(asked, blas.core) != 0)
        blasd_log(BLASD_LOG_WARN,
                  BLASD_BLAS_CORETYPE "=%s: %s has no such kernels, or the "
                                      "processor cannot run them",
                  asked, blas.library);
    blasd_log(BLASD_LOG_INFO, "computing with %s%s%s (%s), %s", blas.library,
              blas.core[0] == '\0' ? "" : ", kernels for ", blas.core, blas.chosen_by, blas.path);
    return 0;
}

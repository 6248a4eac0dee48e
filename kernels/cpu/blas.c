/* What computes here, and what else might. */
#include "kernels/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define MARGIN 1.15 /* a faster set of kernels is taken from here on: less is noise */

/* OpenBLAS' names of its sets of kernels for x86, with what of the processor each uses. */
static const struct {
    const char *name;
    unsigned uses;
    bool candidate;
} cores[] = {
    {"Katmai", 0, false},
    {"Coppermine", 0, false},
    {"Northwood", 0, false},
    {"Prescott", 0, false},
    {"Banias", 0, false},
    {"Atom", 0, false},
    {"Core2", 0, false},
    {"Penryn", 0, false},
    {"Dunnington", 0, false},
    {"Nehalem", 0, false},
    {"Athlon", 0, false},
    {"Opteron", 0, false},
    {"Opteron_SSE3", 0, false},
    {"Barcelona", 0, false},
    {"Nano", 0, false},
    {"Bobcat", 0, false},
    {"Sandybridge", BLASD_X86_AVX, true},
    {"Bulldozer", BLASD_X86_AVX, false},
    {"Piledriver", BLASD_X86_AVX, false},
    {"Steamroller", BLASD_X86_AVX, false},
    {"Excavator", BLASD_X86_AVX | BLASD_X86_AVX2, false},
    {"Zen", BLASD_X86_AVX | BLASD_X86_AVX2, true},
    {"Haswell", BLASD_X86_AVX | BLASD_X86_AVX2, true},
    {"SkylakeX", BLASD_X86_AVX | BLASD_X86_AVX2 | BLASD_X86_AVX512, true},
    {"Cooperlake", BLASD_X86_AVX | BLASD_X86_AVX2 | BLASD_X86_AVX512, false},
    {"SapphireRapids", BLASD_X86_AVX | BLASD_X86_AVX2 | BLASD_X86_AVX512, false},
};
#define CORES ((int)(sizeof cores / sizeof *cores))

unsigned blasd_blas_features(void) {
    unsigned features = 0;
#ifdef __x86_64__
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx")) features |= BLASD_X86_AVX;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) features |= BLASD_X86_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        features |= BLASD_X86_AVX512;
#endif
    return features;
}

int blasd_blas_candidates(unsigned features, const char *core,
                          const char *ret[BLASD_BLAS_CANDIDATES]) {
    int chosen = 0, count = 0;
    while (chosen < CORES && strcasecmp(cores[chosen].name, core) != 0) chosen++;
    if (chosen == CORES) return 0;
    for (int i = CORES - 1; i >= 0 && count < BLASD_BLAS_CANDIDATES; i--)
        if (cores[i].candidate && (cores[i].uses & ~features) == 0 &&
            cores[i].uses > cores[chosen].uses)
            ret[count++] = cores[i].name;
    return count;
}

int blasd_blas_choose(const struct blasd_blas_trial *trials, int count) {
    int best = 0;
    double least = trials[0].gflops * MARGIN;
    for (int i = 1; i < count; i++)
        if (trials[i].gflops > least) {
            best = i;
            least = trials[i].gflops;
        }
    return best;
}

/* The file that holds a function, and where that is loaded; NULL where that cannot be told. */
static const void *file_of(const void *function, const char **ret_path) {
    Dl_info found;
    if (function == NULL || dladdr(function, &found) == 0 || found.dli_fname == NULL) return NULL;
    *ret_path = found.dli_fname;
    return found.dli_fbase;
}

static void describe_openblas(struct blasd_blas *ret) {
    const char *asked = getenv(BLASD_BLAS_CORETYPE), *chosen = getenv(BLASD_BLAS_CHOSEN);
    size_t name;
    snprintf(ret->config, sizeof ret->config, "%s", openblas_get_config());
    name = strcspn(ret->config, " ");
    if (ret->config[name] == ' ') name += 1 + strcspn(ret->config + name + 1, " ");
    snprintf(ret->library, sizeof ret->library, "%.*s", (int)name, ret->config);
    snprintf(ret->core, sizeof ret->core, "%s", openblas_get_corename());
    ret->choice = strstr(ret->config, "DYNAMIC_ARCH") != NULL;
    /* a name that OpenBLAS does not know, or the processor cannot run, it passes over */
    if (asked != NULL && strcasecmp(asked, ret->core) == 0)
        snprintf(ret->chosen_by, sizeof ret->chosen_by, "operator");
    if (chosen != NULL) snprintf(ret->chosen_by, sizeof ret->chosen_by, "%s", chosen);
}

void blasd_blas_describe(struct blasd_blas *ret) {
    const char *path = "", *openblas_path;
    const void *base = file_of((const void *)(uintptr_t)cblas_dgemm, &path);
    const char *slash = strrchr(path, '/');
    *ret = (struct blasd_blas){.chosen_by = "library"};
    snprintf(ret->path, sizeof ret->path, "%s", path);
    /* with another library preloaded OpenBLAS is still there, for what that one does not have */
    if (base == file_of((const void *)(uintptr_t)openblas_get_config, &openblas_path)) {
        describe_openblas(ret);
        return;
    }
    snprintf(ret->library, sizeof ret->library, "%s", slash == NULL ? path : slash + 1);
    snprintf(ret->config, sizeof ret->config, "%s", path);
}

/* Whether a function that this process calls by its name comes from the file. */
static bool comes_from(const char *name, const struct stat *file) {
    const char *path;
    struct stat found;
    return file_of(dlsym(RTLD_DEFAULT, name), &path) != NULL && stat(path, &found) == 0 &&
           found.st_dev == file->st_dev && found.st_ino == file->st_ino;
}

int blasd_blas_comes_from(const char *path, struct blasd_err *err) {
    /* LAPACKE of the system calls LAPACK by these names, wherever they are */
    static const char *const needed[] = {
        "cblas_daxpy", "cblas_ddot",  "cblas_dgemm", "cblas_dgemv", "cblas_dnrm2", "cblas_dsyr",
        "cblas_dsyrk", "cblas_dtrsm", "cblas_dtrsv", "cblas_sgemm", "cblas_sgemv", "cblas_strsm",
        "dgetrf_",     "dgetrs_",     "dpotrf_",     "dsytrf_",     "dgeqrf_",     "dgesdd_",
        "sgetrf_",     "sgetrs_",     "spotrf_",     "ssytrf_",     "sgeqrf_"};
    struct stat file;
    if (stat(path, &file) != 0 || dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL) {
        const char *why = dlopen(path, RTLD_NOW) == NULL ? dlerror() : "it cannot be preloaded";
        return blasd_fail(err, BLASD_E_invalid_field, "blas", "%s", why);
    }
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!comes_from(needed[i], &file))
            return blasd_fail(err, BLASD_E_invalid_field, "blas",
                              "it has no %s: blasd needs BLAS, CBLAS and LAPACK in one library, by "
                              "their plain names",
                              needed[i]);
    if (comes_from("openblas_get_config", &file) &&
        strstr(openblas_get_config(), "USE64BITINT") != NULL)
        return blasd_fail(err, BLASD_E_invalid_field, "blas",
                          "it takes integers of 64 bits; blasd needs those of 32 bits (LP64)");
    return 0;
}

/* Runs a fuzzer's target over files, and over the files of folders, without a fuzzer: the corpus as
 * a plain test, under any compiler and sanitizer. Links with one fuzz_*.c. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int runs;

static int replay_file(const char *path, size_t size) {
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size + 1);
    int rc = -1;
    if (file != NULL && data != NULL && fread(data, 1, size, file) == size) {
        /* a copy of its own size, so that a look beyond its end is seen by the sanitizer */
        uint8_t *exact = malloc(size > 0 ? size : 1);
        if (exact != NULL) {
            memcpy(exact, data, size);
            LLVMFuzzerTestOneInput(exact, size);
            free(exact);
            runs++;
            rc = 0;
        }
    }
    if (rc != 0) perror(path);
    free(data);
    if (file != NULL) fclose(file);
    return rc;
}

static int replay_folder(const char *path) {
    DIR *dir = opendir(path);
    struct dirent *entry;
    int rc = 0;
    if (dir == NULL) {
        perror(path);
        return -1;
    }
    while ((entry = readdir(dir)) != NULL) {
        char inner[4096];
        struct stat info;
        if (snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) >= (int)sizeof inner)
            continue;
        if (stat(inner, &info) == 0 && S_ISREG(info.st_mode))
            rc |= replay_file(inner, (size_t)info.st_size);
    }
    closedir(dir);
    return rc;
}

int main(int argc, char **argv) {
    int rc = 0;
    for (int i = 1; i < argc; i++) {
        struct stat info;
        if (stat(argv[i], &info) != 0) {
            perror(argv[i]);
            return 1;
        }
        rc |= S_ISDIR(info.st_mode) ? replay_folder(argv[i])
                                    : replay_file(argv[i], (size_t)info.st_size);
    }
    printf("%d inputs replayed\n", runs);
    return rc != 0 || runs == 0;
}

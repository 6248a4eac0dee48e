/* .npy files at this end: the header of one that is to be copied as it lies, and one written from
 * an array. What is unusual (Fortran order, big-endian, damaged) is left to the service, which
 * takes or explains it. */
#include "clients/c/internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_LEN 6
#define MOST_TEXT 4096 /* of a header; NumPy's are 118 bytes */

static const char *const descrs[][2] = {
    {"<f8", "float64"},     {"<f4", "float32"},  {"<f2", "float16"}, {"<i8", "int64"},
    {"<i4", "int32"},       {"<i2", "int16"},    {"|i1", "int8"},    {"<u8", "uint64"},
    {"<u4", "uint32"},      {"<u2", "uint16"},   {"|u1", "uint8"},   {"|b1", "bool"},
    {"<c16", "complex128"}, {"<c8", "complex64"}};
#define DESCRS (sizeof descrs / sizeof *descrs)

/* What stands behind "'key':" in the dict, or NULL. */
static const char *value_of(const char *text, const char *key) {
    char quoted[24];
    const char *at;
    snprintf(quoted, sizeof quoted, "'%s':", key);
    at = strstr(text, quoted);
    if (at == NULL) return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

static bool read_dtype(const char *at, struct blasd_array *array) {
    for (size_t i = 0; at != NULL && at[0] == '\'' && i < DESCRS; i++) {
        size_t len = strlen(descrs[i][0]);
        if (strncmp(at + 1, descrs[i][0], len) != 0 || at[1 + len] != '\'') continue;
        array->dtype = descrs[i][1];
        return true;
    }
    return false;
}

/* "(2, 3)", "(2,)" or "()". */
static bool read_shape(const char *at, struct blasd_array *array) {
    array->rank = 0;
    if (at == NULL || *at++ != '(') return false;
    while (*at != ')') {
        char *end = NULL;
        if (!isdigit((unsigned char)*at) || array->rank == BLASD_ARRAY_RANK) return false;
        errno = 0;
        array->shape[array->rank++] = strtoll(at, &end, 10);
        if (errno != 0) return false;
        at = end;
        if (*at == ',')
            at++;
        else if (*at != ')')
            return false;
        at += strspn(at, " ");
    }
    return true;
}

static bool read_text(const char *text, struct blasd_array *array) {
    const char *order = value_of(text, "fortran_order");
    return order != NULL && strncmp(order, "False", 5) == 0 &&
           read_dtype(value_of(text, "descr"), array) && read_shape(value_of(text, "shape"), array);
}

bool blasd_client_npy_read(int fd, struct blasd_array *array, uint64_t *data_at) {
    unsigned char head[12 + MOST_TEXT + 1];
    ssize_t n = pread(fd, head, sizeof head - 1, 0);
    size_t before, text_len;
    int64_t bytes;
    struct stat info;
    if (n < 12 || memcmp(head, MAGIC, MAGIC_LEN) != 0 || head[6] < 1 || head[6] > 3) return false;
    before = head[6] == 1 ? 10 : 12;
    text_len = head[8] | (size_t)head[9] << 8;
    if (before == 12) text_len |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    if (text_len > (size_t)n - before) return false;
    head[before + text_len] = '\0';
    if (!read_text((const char *)head + before, array)) return false;
    bytes = blasd_array_bytes(array);
    *data_at = before + text_len;
    return bytes >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
           (uint64_t)info.st_size - *data_at == (uint64_t)bytes;
}

/* Writes magic, version 1.0, length and dict, padded so that the elements begin at a multiple of
 * 64. */
static bool write_header(FILE *file, const struct blasd_array *array, const char *descr) {
    char shape[BLASD_ARRAY_RANK * 24 + 8] = "", text[384];
    size_t len = 0, padded;
    int n;
    for (int i = 0; i < array->rank; i++)
        len += (size_t)snprintf(shape + len, sizeof shape - len, "%s%lld%s", i == 0 ? "" : ", ",
                                (long long)array->shape[i], array->rank == 1 ? "," : "");
    n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                 descr, shape);
    padded = ((size_t)n + 1 + 10 + 63) / 64 * 64 - 10;
    return fprintf(file, MAGIC "\x01%c%c%c%s%*s", 0, (int)(padded & 255), (int)(padded >> 8), text,
                   (int)(padded - (size_t)n), "\n") > 0;
}

void blasd_remove_partial(const char *path) {
    struct stat info;
    if (lstat(path, &info) == 0 && S_ISREG(info.st_mode)) unlink(path);
}

int blasd_reply_save(const struct blasd_reply *reply, const char *output, const char *path,
                     struct blasd_problem *problem) {
    const struct blasd_array *array = blasd_reply_array(reply, output);
    const char *descr = NULL;
    size_t bytes;
    FILE *file;
    bool good;
    if (array == NULL)
        return blasd_problem_set(problem, "unknown_output", "the job has no output '%s'",
                                 output == NULL ? "" : output);
    if (path == NULL) return blasd_refuse_no_path(problem);
    for (size_t i = 0; i < DESCRS; i++)
        if (strcmp(descrs[i][1], array->dtype) == 0) descr = descrs[i][0];
    if (descr == NULL)
        return blasd_problem_set(problem, "not_acceptable", "a .npy file cannot hold %s",
                                 array->dtype);
    file = fopen(path, "wb");
    bytes = (size_t)blasd_array_bytes(array);
    good = file != NULL && write_header(file, array, descr) &&
           fwrite(array->data, 1, bytes, file) == bytes;
    if (file != NULL && fclose(file) != 0) good = false;
    if (good) return 0;
    blasd_problem_set(problem, "file_not_writable", "the file %s cannot be written: %s", path,
                      strerror(errno));
    if (file != NULL) blasd_remove_partial(path);
    return -1;
}

/* What the client's own files share; not for its users. */
#ifndef BLASD_CLIENT_INTERNAL_H
#define BLASD_CLIENT_INTERNAL_H

#include "clients/c/blasd.h"

#include <curl/curl.h>
#include <jansson.h>

#define BLASD_REPLY_ARRAYS 64

struct blasd_reply {
    unsigned char *body; /* owned: what the service sent; arrays point into it */
    size_t len;
    unsigned char *map; /* owned: where arrays lie in shared memory, or NULL */
    size_t map_len;
    json_t *document; /* owned: the job document */
    json_t *header;   /* owned: the safetensors header, which owns the names; NULL for JSON */
    char *text;       /* owned: the document as the service wrote it */
    struct blasd_array arrays[BLASD_REPLY_ARRAYS];
    int array_count;
    bool complete; /* has all arrays of the job */
};

#define BLASD_SHARED_NAME 32 /* digits */

/* One file of ours in the service's directory. It is locked, or the service would sweep it. */
struct blasd_shared {
    char name[BLASD_SHARED_NAME + 1];
    char *path; /* owned */
    int fd;
    pid_t owner;        /* the process that made it, and removes it */
    unsigned char *map; /* owned; NULL: the file was written, not mapped */
    size_t len;
    struct blasd_array *arrays; /* owned, with their names; none where it was written */
    int array_count;
};

/* The safetensors dtype code of a NumPy name and back, with the element's size; NULL: unknown. */
const char *blasd_dtype_code(const char *name, size_t *size);
const char *blasd_dtype_of_code(const char *code, size_t *size);

/* Bytes of an array, or -1 where its dtype is unknown or its shape absurd. */
int64_t blasd_array_bytes(const struct blasd_array *array);
/* Whether name, dtype, rank and lengths can be; `problem` says which cannot. */
int blasd_array_check(const struct blasd_array *array, struct blasd_problem *problem);
/* Where an array begins that comes after `at` bytes of data. */
uint64_t blasd_array_place(uint64_t at, unsigned alignment);
/* A safetensors header, its length in front, padded to a multiple of 64; arrays begin at multiples
 * of `alignment` and `*data_bytes` lie behind the header. `metadata` is stolen, and may be NULL.
 * New, for free(); NULL and `problem` where an array is not well formed. */
unsigned char *blasd_tensors_header(const struct blasd_array *arrays, int count, unsigned alignment,
                                    json_t *metadata, size_t *len, uint64_t *data_bytes,
                                    struct blasd_problem *problem);
/* What a request says beside its inputs, as texts by name: op, params, priority, … New; NULL and
 * `problem` where one of them is no UTF-8. */
json_t *blasd_request_words(const struct blasd_request *request, struct blasd_problem *problem);
/* Makes a reply of a body, which it takes over also where it fails. */
struct blasd_reply *blasd_reply_parse(unsigned char *body, size_t len, bool safetensors,
                                      struct blasd_problem *problem);
/* Fills `problem` from a problem document (or whatever the body is). */
void blasd_problem_parse(struct blasd_problem *problem, long status, const void *body, size_t len);
/* The same from a JSON value; NULL is taken. */
void blasd_problem_from(struct blasd_problem *problem, const json_t *document);
int blasd_problem_set(struct blasd_problem *problem, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* --- client_upload.c: a request body on its way out, a header, then the arrays where they lie */

struct blasd_upload {
    const struct blasd_array *arrays;
    const unsigned char *header;
    size_t header_len;
    uint64_t total, sent;
};

/* For CURLOPT_READFUNCTION and CURLOPT_SEEKFUNCTION; `arg` is a struct blasd_upload. */
size_t blasd_upload_read(char *out, size_t size, size_t count, void *arg);
int blasd_upload_seek(void *arg, curl_off_t offset, int origin);

/* --- client.c */

/* Gives a reply of a job that has succeeded its arrays: mapped where they can be, else fetched,
 * which replaces the reply. Leaves it where it fails. */
int blasd_client_complete(struct blasd_client *client, struct blasd_reply **reply,
                          struct blasd_problem *problem);

/* --- client_share.c: files in the service's directory */

/* An empty file of ours, its name begun with `prefix`, to be laid out by one of the next two. */
int blasd_shared_open(const char *directory, const char *prefix, struct blasd_shared **ret,
                      struct blasd_problem *problem);
/* Gives the file room for these arrays and maps it; values are zeros. no_space. */
int blasd_shared_lay_out(struct blasd_shared *shared, const struct blasd_array *specs, int count,
                         struct blasd_problem *problem);
/* A file with the request's inputs copied into it; NULL where sending them is better (they are
 * small) or the only way (no room, no directory, a .npy file that is not row-major as it lies). */
struct blasd_shared *blasd_shared_copy(const char *directory, const char *prefix,
                                       const struct blasd_request *request);
/* Maps the outputs of a job that has succeeded; false: they do not all lie in a file there. */
bool blasd_reply_map(struct blasd_reply *reply, const char *directory);

/* --- client_npy.c */

/* Whether the .npy file is row-major and little-endian, as safetensors are: then fills all of
 * `array` but its name and data, and `*data_at`, where the elements begin. What is no .npy file at
 * all is for the service to refuse. */
bool blasd_client_npy_read(int fd, struct blasd_array *array, uint64_t *data_at);
/* Removes an output file that could not be written whole, but never a device or a pipe. */
void blasd_remove_partial(const char *path);

#endif

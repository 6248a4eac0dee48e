/* `blasd run --split`: one job as blocks, each an ordinary job on slices of tensors that are kept
 * meanwhile, whose outputs go to one .npy file through a memory map. */
#include "clients/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define IN_FLIGHT 16
#define ATTEMPTS 3
#define HEADER 128 /* bytes of the file before its elements */

struct split {
    const struct cli_split *what;
    struct blasd_client *client;
    struct blasd_async *async;
    const char *cut, *output; /* what the blocks are slices of, and what they make */
    int axis, out_axis;       /* dimensions of both */
    bool cuts_c;              /* a second input that has the same rows */
    int64_t total;
    struct block {
        struct split *of;
        int64_t begin, end;
        int attempts;
    } * blocks;
    int next, in_flight;
    int done;       /* less all there are: 0 at the end */
    json_t *stored; /* ids of tensors to be forgotten, by input */
    int fd;
    char *map;
    size_t map_len;
    int64_t row_bytes, rows, size; /* of the output: a row's, how many, an element's */
    struct blasd_problem problem;
    bool failed;
};

/* --- what is cut */

static const char *word_of(const struct split *split, const char *param) {
    const char *word = json_string_value(json_object_get(split->what->params, param));
    return word == NULL ? "" : word;
}

static bool refuse(const struct split *split, const char *text) {
    cli_say(split->what->cli, "--split: %s", text);
    return false;
}

static bool is_given(const struct split *split, const char *name) {
    const struct blasd_request *request = &split->what->request;
    for (int i = 0; i < request->file_count; i++)
        if (strcmp(request->files[i].name, name) == 0) return true;
    return json_object_get(split->what->references, name) != NULL;
}

static bool find_cut(struct split *split) {
    const char *op = split->what->request.op, *metric = word_of(split, "metric");
    if (strcmp(op, "matmul") == 0) {
        split->cut = "a";
        split->output = "c";
        split->axis = json_is_true(json_object_get(split->what->params, "transpose_a"));
    } else if (strcmp(op, "solve") == 0) {
        split->cut = "b";
        split->output = "x";
        split->axis = split->out_axis = 1;
    } else if (strcmp(op, "distance") == 0) {
        const char *output = word_of(split, "output");
        split->cut = "x";
        split->output = "d";
        if (*output != '\0' && strcmp(output, "full") != 0)
            return refuse(split, "of distance only output=full is made of blocks");
        if ((strcmp(metric, "seuclidean") == 0 && !is_given(split, "V")) ||
            (strcmp(metric, "mahalanobis") == 0 && !is_given(split, "VI")))
            return refuse(split, "give V or VI: the metric would take that of each block");
    } else
        return refuse(split, "distance, matmul and solve are made of blocks");
    if (split->what->output[0] == '\0' || strcmp(split->what->output, split->output) == 0)
        return true;
    return refuse(split, "the file takes the operation's first output");
}

/* What is known of an input that is a whole tensor. */
static bool look(struct split *split, const char *name, struct blasd_tensor_info *tensor) {
    const json_t *reference = json_object_get(split->what->references, name);
    const char *id = json_string_value(json_object_get(reference, "tensor"));
    struct blasd_problem problem;
    return id != NULL && json_object_get(reference, "slice") == NULL &&
           blasd_tensor_look(split->client, id, tensor, &problem) == 0;
}

/* Has the service keep the files, in whose place the job refers to tensors. The exit status. */
static int store(struct split *split) {
    const struct cli_split *what = split->what;
    for (int i = 0; i < what->request.file_count; i++) {
        struct blasd_put put = {.path = what->request.files[i].path};
        const char *name = what->request.files[i].name;
        struct blasd_tensor_info tensor;
        if (blasd_tensor_put(split->client, &put, &tensor, &split->problem) != 0)
            return cli_complain(what->cli, &split->problem);
        json_object_set_new(split->stored, name, json_string(tensor.id));
        json_object_set_new(what->references, name, json_pack("{s:s}", "tensor", tensor.id));
    }
    return CLI_OK;
}

static bool plan(struct split *split) {
    struct blasd_tensor_info cut, b, c;
    int blocks = split->what->blocks;
    bool vector = look(split, "b", &b) && b.rank == 1;
    if (!look(split, split->cut, &cut) || cut.rank != 2)
        return refuse(split, "blocks are cut of a matrix that is a file.npy or tensor:ID");
    split->total = cut.shape[split->axis];
    split->cuts_c = strcmp(split->output, "c") == 0 && look(split, "c", &c) &&
                    c.rank == (vector ? 1 : 2) && c.shape[0] == split->total;
    if (strcmp(split->cut, "x") == 0 && json_object_get(split->what->references, "y") == NULL)
        json_object_set(split->what->references, "y",
                        json_object_get(split->what->references, "x"));
    if (split->total < 1) return refuse(split, "there are no rows");
    if (blocks > split->total) blocks = (int)split->total;
    split->blocks = calloc((size_t)blocks, sizeof *split->blocks);
    if (split->blocks == NULL) return refuse(split, "out of memory");
    for (int i = 0; i < blocks; i++)
        split->blocks[i] = (struct block){.of = split,
                                          .begin = split->total * i / blocks,
                                          .end = split->total * (i + 1) / blocks};
    split->done = -blocks;
    return true;
}

/* --- the file */

/* With errno, or the dtype's name where that is what a .npy file cannot hold. */
static bool fail_file(struct split *split, const char *why) {
    struct blasd_problem problem = {.code = "file_not_writable"};
    snprintf(problem.message, sizeof problem.message, "the file %s cannot be written: %s",
             split->what->path, why == NULL ? strerror(errno) : why);
    split->problem = problem;
    split->failed = true;
    return false;
}

/* "<f8" of float64. */
static bool describe(const char *dtype, char descr[8], int64_t *size) {
    *size = strtol(dtype + strcspn(dtype, "0123456789"), NULL, 10) / 8;
    snprintf(descr, 8, "<%c%d", dtype[0], (int)*size);
    return *size > 0 && strncmp(dtype, "bfloat", 6) != 0;
}

/* Makes the file, with room for all, when the first block is there. */
static bool make_file(struct split *split, const struct blasd_array *block) {
    char descr[8], shape[64], text[HEADER + 1];
    int64_t across = block->rank == 1 ? 1 : block->shape[1];
    int len;
    if (!describe(block->dtype, descr, &split->size))
        return fail_file(split, "it has a dtype that no .npy file holds");
    split->rows = split->out_axis == 0 ? split->total : block->shape[0];
    if (split->out_axis == 1) across = split->total;
    split->row_bytes = across * split->size;
    snprintf(shape, sizeof shape, block->rank == 1 ? "%lld," : "%lld, %lld", (long long)split->rows,
             (long long)across);
    memset(text, ' ', HEADER);
    memcpy(text, "\x93NUMPY\x01\0", 8);
    text[8] = HEADER - 10;
    text[9] = '\0';
    len = snprintf(text + 10, HEADER - 10,
                   "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape);
    text[10 + len] = ' ';
    text[HEADER - 1] = '\n';
    split->map_len = HEADER + (size_t)(split->rows * split->row_bytes);
    split->fd = open(split->what->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (split->fd < 0) return fail_file(split, NULL);
    errno = posix_fallocate(split->fd, 0, (off_t)split->map_len);
    if (errno != 0) return fail_file(split, NULL);
    split->map = mmap(NULL, split->map_len, PROT_READ | PROT_WRITE, MAP_SHARED, split->fd, 0);
    if (split->map == MAP_FAILED) split->map = NULL;
    if (split->map == NULL) return fail_file(split, NULL);
    memcpy(split->map, text, HEADER);
    return true;
}

/* Of a job that has not succeeded: what is there is not the whole. Nothing but a file is removed.
 */
static void remove_file(const struct split *split) {
    struct stat info;
    if (split->fd >= 0 && fstat(split->fd, &info) == 0 && S_ISREG(info.st_mode))
        unlink(split->what->path);
}

static void place(struct split *split, const struct block *block, const struct blasd_array *array) {
    int64_t width = block->end - block->begin, row = width * split->size;
    const char *from = array->data;
    char *to = split->map + HEADER;
    if (split->out_axis == 0)
        memcpy(to + block->begin * split->row_bytes, from, (size_t)(width * split->row_bytes));
    else
        for (int64_t i = 0; i < split->rows; i++)
            memcpy(to + i * split->row_bytes + block->begin * split->size, from + i * row,
                   (size_t)row);
}

/* --- the jobs */

static void submit(struct split *split, struct block *block);

static bool is_the_services(const struct blasd_problem *problem) {
    static const char *const codes[] = {"device_error", "out_of_memory", "poisoned"};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(problem->code, codes[i]) == 0) return true;
    return problem->retry;
}

static bool has_shape(const struct split *split, const struct block *block,
                      const struct blasd_array *array) {
    return array != NULL && array->rank >= 1 && array->rank <= 2 && array->rank > split->out_axis &&
           array->shape[split->out_axis] == block->end - block->begin;
}

static void on_done(void *arg, uint64_t job, struct blasd_reply *reply,
                    const struct blasd_problem *problem) {
    struct block *block = arg;
    struct split *split = block->of;
    const struct blasd_array *array =
        reply == NULL ? NULL : blasd_reply_array(reply, split->output);
    (void)job;
    split->in_flight--;
    if (split->failed || cli_interrupted != 0) {
        /* nothing more is asked for */
    } else if (reply == NULL && block->attempts < ATTEMPTS && is_the_services(problem)) {
        submit(split, block);
    } else if (reply == NULL) {
        split->problem = *problem;
        split->failed = true;
    } else if (!has_shape(split, block, array)) {
        split->problem =
            (struct blasd_problem){.code = "bad_answer", .message = "a block is not one"};
        split->failed = true;
    } else if (split->map != NULL || make_file(split, array)) {
        place(split, block, array);
        split->done++;
    }
    blasd_reply_free(reply);
}

/* The references of a job, with the block in place of the whole. Text of its own. */
static char *references_of(const struct split *split, const struct block *block) {
    json_t *references = json_copy(split->what->references);
    const char *names[] = {split->cut, split->cuts_c ? "c" : NULL};
    char *text;
    for (int i = 0; i < 2 && names[i] != NULL; i++) {
        json_t *part = json_copy(json_object_get(references, names[i]));
        json_t *rows = json_pack("[I,I]", (json_int_t)block->begin, (json_int_t)block->end);
        json_object_set_new(part, "slice",
                            i == 0 && split->axis == 1 ? json_pack("[[n,n],o]", rows)
                                                       : json_pack("[o]", rows));
        json_object_set_new(references, names[i], part);
    }
    text = json_dumps(references, JSON_COMPACT);
    json_decref(references);
    return text;
}

static void submit(struct split *split, struct block *block) {
    struct blasd_request request = split->what->request;
    char results[32], *references = references_of(split, block);
    snprintf(results, sizeof results, "[\"%s\"]", split->output);
    request.files = NULL;
    request.file_count = 0;
    request.references = references;
    request.results = results;
    block->attempts++;
    if (references == NULL || blasd_async_submit(split->async, &request, split->what->timeout,
                                                 on_done, block, NULL, &split->problem) != 0)
        split->failed = true;
    else
        split->in_flight++;
    free(references);
}

static void run_blocks(struct split *split) {
    int count = -split->done;
    split->async = blasd_async_new(split->client, IN_FLIGHT);
    if (split->async == NULL) {
        split->failed = true;
        return;
    }
    while (!split->failed && cli_interrupted == 0 && split->done < 0) {
        while (!split->failed && split->next < count && split->in_flight < IN_FLIGHT)
            submit(split, &split->blocks[split->next++]);
        if (split->what->bar) fprintf(stderr, "\r%d of %d blocks", count + split->done, count);
        blasd_async_turn(split->async, 0.5);
    }
    if (split->what->bar) fputs("\r\033[K", stderr);
    blasd_async_free(split->async); /* what is in flight is cancelled */
}

static int report(const struct split *split, int count) {
    json_t *document;
    if (!split->what->cli->json) return CLI_OK;
    document = json_pack("{s:i,s:s,s:s}", "blocks", count, "output", split->output, "file",
                         split->what->path);
    cli_print_json(document);
    json_decref(document);
    return CLI_OK;
}

int cli_split(struct blasd_client *client, const struct cli_split *what) {
    struct split split = {.what = what, .client = client, .fd = -1, .stored = json_object()};
    struct blasd_problem ignored;
    int status = find_cut(&split) ? store(&split) : CLI_USAGE, count = 0;
    const char *name;
    json_t *id;
    if (status == CLI_OK && !plan(&split)) status = CLI_USAGE;
    if (status == CLI_OK) {
        count = -split.done;
        cli_catch_signals();
        run_blocks(&split);
        status = cli_interrupted != 0 ? 128 + cli_interrupted
                 : split.failed       ? cli_complain(what->cli, &split.problem)
                                      : report(&split, count);
    }
    json_object_foreach(split.stored, name, id)
        blasd_tensor_delete(client, json_string_value(id), &ignored);
    if (split.map != NULL) munmap(split.map, split.map_len);
    if (status != CLI_OK) remove_file(&split);
    if (split.fd >= 0) close(split.fd);
    json_decref(split.stored);
    free(split.blocks);
    return status;
}

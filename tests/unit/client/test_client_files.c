/* What the C client does with files at its end: which .npy files it copies as they lie, what it
 * writes, and which results it maps. Answers of a service are made up here. */
#include "clients/c/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/blasd-client-files.XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

static const struct blasd_share *share_in(const char *directory) {
    static _Alignas(struct blasd_share) char room[sizeof(struct blasd_share) + sizeof folder];
    struct blasd_share *share = (void *)room;
    memcpy(share->directory, directory, strlen(directory) + 1);
    return share;
}

static void path_of(char *path, size_t room, const char *name) {
    snprintf(path, room, "%s/%s", folder, name);
}

static void write_file(const char *name, const void *bytes, size_t len) {
    char path[256];
    FILE *file;
    path_of(path, sizeof path, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *name) {
    char path[256];
    path_of(path, sizeof path, name);
    assert_int_equal(unlink(path), 0);
}

/* Reads a file of this header (the text only) and so many bytes behind it. */
static bool reads(const char *text, size_t data_len, struct blasd_array *array, uint64_t *data_at) {
    unsigned char file[1024] = "\x93NUMPY\x01";
    size_t text_len = strlen(text);
    char path[256];
    bool good;
    int fd;
    file[8] = (unsigned char)text_len;
    memcpy(file + 10, text, text_len);
    write_file("x.npy", file, 10 + text_len + data_len);
    path_of(path, sizeof path, "x.npy");
    fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    memset(array, 0, sizeof *array);
    good = blasd_client_npy_read(fd, array, data_at);
    close(fd);
    unlink(path);
    return good;
}

static void test_plain_npy(void **state) {
    struct blasd_array array;
    uint64_t at;
    (void)state;
    assert_true(
        reads("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }\n", 48, &array, &at));
    assert_string_equal(array.dtype, "float64");
    assert_int_equal(array.rank, 2);
    assert_int_equal(array.shape[0], 2);
    assert_int_equal(array.shape[1], 3);
    assert_int_equal(at, 70);
    assert_true(reads("{'shape': (5,), 'descr': '|b1', 'fortran_order': False}", 5, &array, &at));
    assert_string_equal(array.dtype, "bool");
    assert_int_equal(array.rank, 1);
    assert_true(reads("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", 4, &array, &at));
    assert_int_equal(array.rank, 0);
    assert_true(
        reads("{'descr': '<i2', 'fortran_order': False, 'shape': (0, 7), }", 0, &array, &at));
}

static void test_npy_to_be_sent(void **state) {
    static const char *const texts[] = {
        "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }",
        "{'descr': '>f8', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '<c32', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '<f88', 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': [('x', '<f8')], 'fortran_order': False, 'shape': (2, 3), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, -3), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3", /* it ends here */
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2 3), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,2,3), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 3), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4), }",
        "{'descr': '<f8', 'fortran_order': False}",
        "{'descr': '<f8', 'shape': (2, 3), }",
        "'descr':",
        ""};
    struct blasd_array array;
    uint64_t at;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (reads(texts[i], 48, &array, &at)) fail_msg("taken: %s", texts[i]);
    /* shorter or longer than it says */
    assert_false(
        reads("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", 47, &array, &at));
    assert_false(
        reads("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", 49, &array, &at));
}

static void test_broken_npy(void **state) {
    static const char *const files[] = {"",
                                        "\x93NUMPY",
                                        "\x93NUMPY\x01_\xff\xff{}          ",
                                        "\x93NUMPY\x02_\xff\xff\xff\xff{}     ",
                                        "\x93NUMPY\x07_\x02_{}            ",
                                        "a text, not an array"};
    struct blasd_array array;
    uint64_t at;
    char path[256];
    (void)state;
    path_of(path, sizeof path, "x.npy");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int fd;
        write_file("x.npy", files[i], strlen(files[i]));
        fd = open(path, O_RDONLY);
        assert_false(blasd_client_npy_read(fd, &array, &at));
        close(fd);
    }
    remove_file("x.npy");
}

/* What is saved is read again, for every dtype that .npy has. */
static void test_saved_and_read(void **state) {
    static const char *const dtypes[] = {"float64", "float32", "float16", "int64",
                                         "int32",   "int16",   "int8",    "uint64",
                                         "uint32",  "uint16",  "uint8",   "bool"};
    static double data[6] = {1, 2, 3, 4, 5, 6};
    struct blasd_reply reply = {.array_count = 1};
    struct blasd_problem problem;
    struct blasd_array array = {0};
    uint64_t at;
    char path[256];
    (void)state;
    path_of(path, sizeof path, "x.npy");
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int rank = 0; rank <= BLASD_ARRAY_RANK; rank++) {
            struct stat info;
            int fd;
            reply.arrays[0] = (struct blasd_array){
                .name = "c", .dtype = dtypes[i], .rank = rank, .shape = {2, 1, 1, 3, 1, 1, 1, 1}};
            reply.arrays[0].data = data;
            assert_int_equal(blasd_reply_save(&reply, "c", path, &problem), 0);
            fd = open(path, O_RDONLY);
            assert_true(blasd_client_npy_read(fd, &array, &at));
            assert_string_equal(array.dtype, dtypes[i]);
            assert_int_equal(array.rank, rank);
            assert_memory_equal(array.shape, reply.arrays[0].shape, (size_t)rank * 8);
            assert_int_equal(at % 64, 0);
            assert_int_equal(fstat(fd, &info), 0);
            assert_int_equal(info.st_size, at + (uint64_t)blasd_array_bytes(&array));
            close(fd);
        }
    remove_file("x.npy");
    assert_int_equal(blasd_reply_save(&reply, "d", path, &problem), -1);
    reply.arrays[0].dtype = "bfloat16";
    assert_int_equal(blasd_reply_save(&reply, "c", path, &problem), -1);
    assert_string_equal(problem.code, "not_acceptable");
    reply.arrays[0].dtype = "float64";
    path_of(path, sizeof path, "no-such-folder/x.npy");
    assert_int_equal(blasd_reply_save(&reply, "c", path, &problem), -1);
    assert_string_equal(problem.code, "file_not_writable");
}

/* Whether a document with these outputs has its arrays mapped. */
static bool maps(const char *outputs, struct blasd_reply **reply) {
    struct blasd_problem problem;
    char *body = NULL;
    bool good;
    int len = asprintf(&body, "{\"id\":\"x\",\"state\":\"succeeded\",\"outputs\":{%s}}", outputs);
    assert_true(len > 0);
    *reply = blasd_reply_parse((unsigned char *)body, (size_t)len, false, &problem);
    assert_non_null(*reply);
    good = blasd_reply_map(*reply, folder);
    assert_int_equal(good, blasd_reply_mapped(*reply));
    if (good) return true;
    assert_int_equal(blasd_reply_array_count(*reply), 0);
    blasd_reply_free(*reply);
    return false;
}

#define BLOB(FILE, OFFSET) "\"blob\":{\"name\":\"" FILE "\",\"offset\":" OFFSET ",\"bytes\":16}"
#define TWO "\"dtype\":\"float64\",\"shape\":[2],"

static void test_results_that_are_mapped(void **state) {
    static const double numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct blasd_reply *reply;
    double *c;
    (void)state;
    write_file("job.out", numbers, sizeof numbers);
    assert_true(
        maps("\"c\":{" TWO BLOB("job.out", "48") "},\"d\":{" TWO BLOB("job.out", "0") "}", &reply));
    c = blasd_reply_data(reply, "c");
    assert_true(c[0] == 7 && c[1] == 8);
    c[0] = 9; /* a copy of one's own */
    assert_true(((double *)blasd_reply_array(reply, "d")->data)[1] == 2);
    blasd_reply_free(reply);
    assert_true(maps("\"c\":{" TWO BLOB("job.out", "48") "}", &reply));
    assert_true(((double *)blasd_reply_array(reply, "c")->data)[0] == 7);
    blasd_reply_free(reply);
    remove_file("job.out");
}

static void test_results_that_are_fetched(void **state) {
    static const char *const outputs[] = {
        "",
        "\"c\":{" TWO "\"href\":\"/\"}",
        "\"c\":{" TWO BLOB("job.out", "0") "},\"d\":{" TWO "\"href\":\"/\"}",
        "\"c\":{" TWO BLOB("job.out", "0") "},\"d\":{" TWO BLOB("other.out", "0") "}",
        "\"c\":{" TWO BLOB("gone.out", "0") "}",
        "\"c\":{" TWO BLOB("../x", "0") "}",
        "\"c\":{" TWO BLOB("link.out", "0") "}",
        "\"c\":{" TWO BLOB("empty.out", "0") "}",
        "\"c\":{" TWO BLOB("job.out", "56") "}",
        "\"c\":{" TWO BLOB("job.out", "4") "}",
        "\"c\":{" TWO BLOB("job.out", "-16") "}",
        "\"c\":{" TWO BLOB("job.out", "9223372036854775800") "}",
        "\"c\":{\"dtype\":\"quaternion\",\"shape\":[2]," BLOB("job.out", "0") "}",
        "\"c\":{\"dtype\":\"float64\",\"shape\":[-2]," BLOB("job.out", "0") "}",
        "\"c\":{\"dtype\":\"float64\",\"shape\":[1,1,1,1,1,1,1,1,2]," BLOB("job.out", "0") "}",
        "\"c\":{\"dtype\":\"float64\",\"shape\":[4611686018427387904,8]," BLOB("job.out", "0") "}"};
    static const double numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct blasd_reply *reply;
    char path[256];
    (void)state;
    write_file("job.out", numbers, sizeof numbers);
    write_file("other.out", numbers, sizeof numbers);
    write_file("empty.out", "", 0);
    path_of(path, sizeof path, "link.out");
    assert_int_equal(symlink("job.out", path), 0);
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        if (maps(outputs[i], &reply)) fail_msg("mapped: %s", outputs[i]);
    remove_file("job.out");
    remove_file("other.out");
    remove_file("empty.out");
    remove_file("link.out");
}

/* Small inputs are sent, and so is what no file can be made for; nothing is left behind. */
static void test_what_is_copied(void **state) {
    static double data[200000];
    struct blasd_array input = {.name = "x", .dtype = "float64", .rank = 1, .shape = {200000}};
    struct blasd_request request = {.op = "distance", .inputs = &input, .input_count = 1};
    struct blasd_shared *copy;
    unsigned char head[64];
    uint64_t header_len = 0;
    int fd;
    (void)state;
    input.data = data;
    data[199999] = 4;
    assert_null(blasd_shared_copy(share_in("/nonexistent"), &request));
    copy = blasd_shared_copy(share_in(folder), &request);
    assert_non_null(copy);
    fd = open(copy->path, O_RDONLY);
    assert_int_equal(pread(fd, head, 64, 0), 64);
    for (int i = 0; i < 8; i++) header_len |= (uint64_t)head[i] << (8 * i);
    assert_int_equal((header_len + 8) % 64, 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), header_len + 8 + sizeof data);
    assert_int_equal(pread(fd, head, 8, (off_t)(header_len + sizeof data)), 8);
    assert_memory_equal(head, &data[199999], 8);
    close(fd);
    blasd_shared_free(copy);
    input.shape[0] = 1000;
    assert_null(blasd_shared_copy(share_in(folder), &request));
    input.shape[0] = 200000;
    input.dtype = "float128";
    assert_null(blasd_shared_copy(share_in(folder), &request));
}

/* Other threads may still be using the directory of before. */
static void test_sharing_anew(void **state) {
    struct blasd_client *client = blasd_client_new("http://127.0.0.1:1");
    const struct blasd_share *first, *second;
    (void)state;
    assert_null(blasd_client_sharing(client));
    assert_int_equal(blasd_client_share_in(client, "/one", "a"), 0);
    first = blasd_client_sharing(client);
    assert_int_equal(blasd_client_share_in(client, "/one", "a"), 0);
    assert_ptr_equal(blasd_client_sharing(client), first);
    assert_int_equal(blasd_client_share_in(client, "/two", "b"), 0);
    second = blasd_client_sharing(client);
    assert_string_equal(second->directory, "/two");
    assert_string_equal(second->prefix, "b");
    assert_string_equal(first->directory, "/one");
    assert_string_equal(first->prefix, "a");
    assert_string_equal(blasd_client_directory(client), "/two");
    blasd_client_free(client);
}

/* What is said of a job whose time was over while it waited to be sent. */
static void test_late(void **state) {
    struct blasd_errand errand = {.retries = 0};
    (void)state;
    blasd_errand_late(&errand);
    assert_string_equal(errand.problem.code, "timeout");
    assert_non_null(strstr(errand.problem.message, "before it could be sent"));
    blasd_problem_set(&errand.problem, "queue_full", "Too many jobs");
    blasd_errand_late(&errand);
    assert_string_equal(errand.problem.code, "timeout");
    assert_true(errand.problem.retry);
    assert_non_null(strstr(errand.problem.message, "Too many jobs"));
    assert_null(strstr(errand.problem.message, "before it could be sent"));
    errand.uncertain = true;
    blasd_errand_late(&errand);
    assert_non_null(strstr(errand.problem.message, "may have taken the job"));
}

/* Four arrays of 2^62 bytes are 2^64 together, which is 0 to who adds carelessly. */
static void test_arrays_that_are_too_large_together(void **state) {
    struct blasd_array specs[4];
    struct blasd_shared *shared;
    struct blasd_problem problem;
    size_t len = 0;
    uint64_t data_bytes = 0;
    (void)state;
    for (int i = 0; i < 4; i++)
        specs[i] = (struct blasd_array){
            .name = &"abcd"[i], .dtype = "uint8", .rank = 1, .shape = {INT64_C(1) << 62}};
    assert_null(blasd_tensors_header(specs, 4, 64, NULL, &len, &data_bytes, &problem));
    assert_string_equal(problem.code, "invalid_tensor");
    assert_int_equal(blasd_shared_open(share_in(folder), &shared, &problem), 0);
    assert_int_equal(blasd_shared_lay_out(shared, specs, 4, &problem), -1);
    assert_string_equal(problem.code, "invalid_tensor");
    blasd_shared_free(shared);
}

/* What cannot be said in JSON is refused here, and never left out of what is sent. */
static void test_words_that_are_no_text(void **state) {
    static double data[1] = {1};
    struct blasd_array input = {.name = "a", .dtype = "float64", .data = data};
    struct blasd_request good = {.op = "matmul", .inputs = &input, .input_count = 1};
    struct blasd_request params = good, names = good;
    struct blasd_client *client = blasd_client_new("http://127.0.0.1:1");
    struct blasd_array strange = {.name = "\xff", .dtype = "float64", .data = data};
    struct blasd_problem problem;
    struct blasd_reply *reply;
    (void)state;
    params.params = "{\"precision\":\"\xff\"}";
    names.inputs = &strange;
    assert_int_equal(blasd_client_submit(client, &good, 0, &reply, &problem), -1);
    assert_string_equal(problem.code, "connection_failed"); /* nobody listens there */
    assert_int_equal(blasd_client_submit(client, &params, 0, &reply, &problem), -1);
    assert_string_equal(problem.code, "invalid_request");
    assert_int_equal(blasd_client_submit(client, &names, 0, &reply, &problem), -1);
    assert_string_equal(problem.code, "invalid_request");
    blasd_client_free(client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sharing_anew),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_plain_npy),
        cmocka_unit_test(test_npy_to_be_sent),
        cmocka_unit_test(test_broken_npy),
        cmocka_unit_test(test_saved_and_read),
        cmocka_unit_test(test_results_that_are_mapped),
        cmocka_unit_test(test_results_that_are_fetched),
        cmocka_unit_test(test_what_is_copied),
        cmocka_unit_test(test_arrays_that_are_too_large_together),
        cmocka_unit_test(test_words_that_are_no_text),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

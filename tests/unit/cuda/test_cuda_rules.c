/* Elements that rules make, made on the device: the host's bits, for every rule and dtype, under
 * shuffled schedules; and batches whose inputs nobody copied. */
extern const struct blasd_backend blasd_backend;
#define TRIAL_BACKEND blasd_backend
#include "../kernels/kernel_support.h"

#include "core/rule.h"
#include "kernels/cuda/device.h"
#include "tests/standin/library_standin.h"

extern uint64_t blasd_shim_seed;

#define ROOM 40000 /* bytes */

/* Some tensor of the kind and dtype, of about `n` elements; false where there is none. */
static bool any_rule(enum blasd_rule_kind kind, enum blasd_dtype dtype, int64_t n,
                     struct blasd_rule *rule, struct blasd_tensor *tensor) {
    struct blasd_err err;
    *tensor = blasd_tensor_make(dtype, 1, &n);
    switch (kind) {
    case BLASD_RULE_FULL:
        *rule = (struct blasd_rule){.kind = kind};
        for (int i = 0; i < BLASD_RULE_VALUE_BYTES; i++) rule->value[i] = (unsigned char)(17 * i);
        return true;
    case BLASD_RULE_EYE:
        return blasd_rule_eye(rule, tensor, (int64_t)sqrt((double)n), "", &err) == 0;
    case BLASD_RULE_ARANGE:
        return blasd_rule_arange(rule, tensor, n < 100 ? (double)n : 100, 0,
                                 n < 100 ? -1 : -100.0 / (double)n, "", &err) == 0;
    case BLASD_RULE_LINSPACE: return blasd_rule_linspace(rule, tensor, 0.1, 99.7, n, "", &err) == 0;
    default:
        return blasd_rule_random(rule, tensor, kind, UINT64_C(0x9876543210) + (uint64_t)n, "",
                                 &err) == 0;
    }
}

static void the_bits_are_the_hosts(void **state) {
    static const int64_t lengths[] = {0, 1, 2, 3, 5, 255, 1027};
    static unsigned char host[ROOM] __attribute__((aligned(64)));
    static unsigned char device[ROOM] __attribute__((aligned(64)));
    int made = 0;
    (void)state;
    for (int kind = 0; kind < BLASD_RULE_KINDS; kind++)
        for (int dtype = 0; dtype < BLASD_DTYPE_COUNT; dtype++)
            for (int l = 0; l < 7; l++) {
                struct blasd_rule rule;
                struct blasd_tensor tensor;
                struct blasd_err err;
                size_t bytes;
                if (!any_rule((enum blasd_rule_kind)kind, (enum blasd_dtype)dtype, lengths[l],
                              &rule, &tensor))
                    continue;
                bytes = (size_t)blasd_tensor_bytes(&tensor);
                assert_true(bytes + 16 <= ROOM);
                memset(host, 0xa5, sizeof host);
                memset(device, 0xa5, sizeof device);
                tensor.data = host;
                blasd_rule_fill(&rule, &tensor);
                assert_int_equal(blasd_cuda_make(NULL, &rule, &tensor, device, &err), 0);
                assert_memory_equal(device, host, bytes + 16); /* and nothing behind it */
                made++;
            }
    assert_true(made > 450);
}

/* The trial's input made by a rule: as if it had been sent, so that the trial knows it, and left to
 * the device when the task is bound. */
static void give_rule(struct trial *t, const char *name, const struct blasd_rule *rule,
                      enum blasd_dtype dtype, int rank, const int64_t *shape) {
    int i = blasd_op_input(t->job.op, name);
    struct blasd_tensor tensor = blasd_tensor_make(dtype, rank, shape);
    tensor.data = trial_input(t, name, dtype, BLASD_ROW_MAJOR, rank, shape);
    blasd_rule_fill(rule, &tensor);
    t->job.inputs[i].source = (struct blasd_source){.kind = BLASD_SOURCE_RULE, .rule = *rule};
}

/* Binds the trial; with `leave`, the elements that the kernel makes itself are not there. */
static void bind(struct trial *t, bool leave) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend, t->job.op);
    trial_bind(t);
    for (int i = 0; leave && t->job.op->inputs[i].name != NULL; i++) {
        const struct blasd_tensor *input = &t->task.inputs[i];
        if (t->job.inputs[i].source.kind != BLASD_SOURCE_RULE ||
            (kernel->makes_inputs >> i & 1) == 0 || input->dtype != t->job.inputs[i].tensor.dtype)
            continue;
        memset(input->data, 0x7e, blasd_tensor_bytes(input)); /* large numbers */
        t->task.unmade |= 1u << i;
    }
}

static struct blasd_device *open_device(void) {
    struct blasd_device *device;
    struct blasd_err err;
    assert_int_equal(blasd_backend.device_open(0, &device, &err), 0);
    return device;
}

/* Runs it twice, with elements that were copied and with some that were made there: the same bits.
 * Returns the copies to the device that the second one took. */
static long same_as_copied(struct trial *t) {
    const struct blasd_kernel *kernel = blasd_backend_kernel(&blasd_backend, t->job.op);
    struct blasd_device *device = open_device();
    unsigned char *kept[BLASD_MAX_OUTPUTS] = {NULL};
    struct blasd_err err;
    long copies = 0;
    assert_int_equal(trial_plan(t), BLASD_OK);
    for (int round = 0; round < 2; round++) {
        bind(t, round == 1);
        copies = blasd_standin.copies_up;
        assert_int_equal(kernel->run(device, &t->task, 1, &trial_watch.base, &err), 0);
        assert_int_equal(t->task.err.code, BLASD_OK);
        copies = blasd_standin.copies_up - copies;
        for (int o = 0; t->job.op->outputs[o].name != NULL; o++) {
            size_t bytes;
            if (t->task.outputs[o].rank < 0) continue;
            bytes = (size_t)blasd_tensor_bytes(&t->task.outputs[o]);
            if (round == 0) {
                kept[o] = malloc(bytes + 1);
                memcpy(kept[o], t->task.outputs[o].data, bytes);
            } else {
                assert_memory_equal(kept[o], t->task.outputs[o].data, bytes);
            }
        }
    }
    for (int o = 0; o < BLASD_MAX_OUTPUTS; o++) free(kept[o]);
    blasd_backend.device_close(device);
    return copies;
}

static const struct blasd_rule eye = {.kind = BLASD_RULE_EYE};
static const struct blasd_rule normal = {.kind = BLASD_RULE_NORMAL, .seed = 11};

static void nothing_is_copied(void **state) {
    struct trial *t = trial_new("matmul");
    (void)state;
    give_rule(t, "a", &normal, BLASD_float32, 2, (int64_t[]){150, 20});
    give_rule(t, "b", &normal, BLASD_float32, 3, (int64_t[]){2, 20, 140});
    assert_int_equal(same_as_copied(t), 0);
    trial_free(t);
}

static void some_are_copied(void **state) {
    struct trial *t = trial_new("matmul");
    double *b;
    (void)state;
    give_rule(t, "a", &normal, BLASD_float64, 2, (int64_t[]){9, 20});
    b = trial_input(t, "b", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){20, 4});
    for (int i = 0; i < 80; i++) b[i] = i;
    assert_int_equal(same_as_copied(t), 1);
    trial_free(t);
}

/* So small that one copy bridges it: what goes up before it and behind it leaves it as it is. */
static void between_copied_ones(void **state) {
    struct trial *t = trial_new("matmul");
    double *a, *c;
    (void)state;
    a = trial_input(t, "a", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){4, 4});
    give_rule(t, "b", &normal, BLASD_float64, 2, (int64_t[]){4, 4});
    c = trial_input(t, "c", BLASD_float64, BLASD_ROW_MAJOR, 2, (int64_t[]){4, 4});
    for (int i = 0; i < 16; i++) a[i] = c[i] = i;
    trial_set_float(t, "beta", 1);
    assert_int_equal(same_as_copied(t), 1);
    trial_free(t);
}

/* Where factors are scaled the host looks whether that may overflow: at what the rule makes. */
static void scaled_ones_are_looked_at(void **state) {
    struct trial *t = trial_new("matmul");
    (void)state;
    give_rule(t, "a", &normal, BLASD_float64, 2, (int64_t[]){30, 20});
    give_rule(t, "b", &normal, BLASD_float64, 2, (int64_t[]){20, 25});
    trial_set_float(t, "alpha", 2);
    same_as_copied(t);
    assert_null(strstr(t->task.method, "sums"));
    trial_free(t);
}

static void taken_apart(void **state) {
    struct trial *t = trial_new("qr");
    (void)state;
    give_rule(t, "a", &normal, BLASD_float64, 3, (int64_t[]){2, 9, 6});
    assert_int_equal(same_as_copied(t), 0);
    trial_free(t);
}

/* Of other dtypes than the kernel takes: converted on the host. */
static void integers_are_converted(void **state) {
    struct trial *t = trial_new("solve");
    (void)state;
    give_rule(t, "a", &eye, BLASD_int32, 2, (int64_t[]){6, 6});
    give_rule(t, "b", &eye, BLASD_float64, 2, (int64_t[]){6, 6});
    same_as_copied(t);
    trial_free(t);
}

static void systems(void **state) {
    (void)state;
    for (int complex = 0; complex < 2; complex++) /* complex ones are rearranged on the host */
        for (int certify = 0; certify < 2; certify++) { /* which looks at a and b once more */
            struct trial *t = trial_new("solve");
            enum blasd_dtype dtype = complex ? BLASD_complex128 : BLASD_float64;
            give_rule(t, "a", &normal, dtype, 3, (int64_t[]){3, 12, 12});
            give_rule(t, "b", &normal, dtype, 2, (int64_t[]){12, 2});
            trial_set_bool(t, "certify", certify != 0);
            same_as_copied(t);
            if (complex) assert_true(t->task.upload_bytes >= 3 * 12 * 12 * 4 * sizeof(double));
            trial_free(t);
        }
}

static int shuffle(void **state) {
    (void)state;
    blasd_shim_seed = 7;
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_the_hosts),    cmocka_unit_test(nothing_is_copied),
        cmocka_unit_test(some_are_copied),           cmocka_unit_test(between_copied_ones),
        cmocka_unit_test(scaled_ones_are_looked_at), cmocka_unit_test(taken_apart),
        cmocka_unit_test(integers_are_converted),    cmocka_unit_test(systems),
    };
    return cmocka_run_group_tests(tests, shuffle, NULL);
}

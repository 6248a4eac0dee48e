/* The shim: kernels that are right come out right under every schedule, and kernels that are wrong
 * in ways a GPU may forgive come out wrong, or fail, under some. */
#include "kernels/cuda/gpu.h"

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <vector>

extern "C" {
#include <cmocka.h>
}

#define SEEDS 12

/* Sums of 256 elements: a tree in shared memory, then a warp. `barriers` 0 leaves one out. */
template <bool barriers> __global__ void sum_blocks(const int *x, int n, long long *sums) {
    BLASD_DYNAMIC_SHARED(int, partial);
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), t = (int)threadIdx.x;
    partial[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int half = (int)blockDim.x / 2; half >= 32; half /= 2) {
        if (t < half) partial[t] += partial[t + half];
        if (barriers) __syncthreads();
    }
    if (t < 32) {
        int value = partial[t];
        for (int by = 16; by > 0; by /= 2) value += __shfl_down_sync(0xffffffffu, value, by);
        if (t == 0) sums[blockIdx.x] = value;
    }
}

static int wrong_sums(bool barriers, uint64_t seed) {
    std::vector<int> x(5000);
    std::vector<long long> sums(20, -1);
    struct blasd_err err = {};
    int wrong = 0;
    for (size_t i = 0; i < x.size(); i++) x[i] = (int)(i * 7 % 1000);
    blasd_shim_seed = seed;
    assert_int_equal(blasd_launch(barriers ? sum_blocks<true> : sum_blocks<false>, dim3(20),
                                  dim3(256), 256 * sizeof(int), nullptr, &err, x.data(), 5000,
                                  sums.data()),
                     0);
    for (size_t b = 0; b < 20; b++) {
        long long expected = 0;
        for (size_t i = b * 256; i < (b + 1) * 256 && i < x.size(); i++) expected += x[i];
        if (sums[b] != expected) wrong++;
    }
    return wrong;
}

static void a_tree_sum_is_right_in_every_order(void **) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) assert_int_equal(wrong_sums(true, seed), 0);
}

static void a_missing_barrier_shows(void **) {
    int seen = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        if (wrong_sums(false, seed) > 0) seen++;
    assert_true(seen >= SEEDS - 2); /* in order of threads it may go well */
}

__global__ void reverse_in_place(int *x, bool twice) {
    BLASD_STATIC_SHARED(int, copy, [128]);
    for (int round = 0; round < 3; round++) {
        copy[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = copy[127 - threadIdx.x];
        if (twice)
            __syncthreads(); /* without it a thread overwrites what its peer has yet to read */
    }
}

static bool reversed(bool twice, uint64_t seed) {
    std::vector<int> x(128);
    struct blasd_err err = {};
    for (int i = 0; i < 128; i++) x[(size_t)i] = i;
    blasd_shim_seed = seed;
    assert_int_equal(
        blasd_launch(reverse_in_place, dim3(1), dim3(128), 0, nullptr, &err, x.data(), twice), 0);
    for (int i = 0; i < 128; i++)
        if (x[(size_t)i] != 127 - i) return false;
    return true;
}

static void a_barrier_missing_at_the_end_of_a_loop_shows(void **) {
    int seen = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        assert_true(reversed(true, seed));
        if (!reversed(false, seed)) seen++;
    }
    assert_true(seen >= SEEDS - 2);
}

__global__ void not_all_meet(int how) {
    if (how == 0 && threadIdx.x % 2 == 0) __syncthreads();
    if (how == 0 && threadIdx.x % 2 == 1) (void)__shfl_sync(0xffffffffu, 1, 0);
    if (how == 1 && threadIdx.x < 16) (void)__shfl_sync(0x0000ffffu, 1, 20);
    if (how == 2)
        (void)(threadIdx.x < 16 ? __ballot_sync(0xffffffffu, 1)
                                : (unsigned)__reduce_add_sync(0xffffffffu, 1u));
    if (how == 3 && threadIdx.x == 0) __syncwarp(0xfffffffeu);
}

static void what_cuda_leaves_undefined_fails_with_a_sentence(void **) {
    for (int how = 0; how < 4; how++) {
        struct blasd_err err = {};
        blasd_shim_seed = 2;
        assert_int_equal(blasd_launch(not_all_meet, dim3(1), dim3(64), 0, nullptr, &err, how),
                         -(int)BLASD_E_device_error);
        assert_true(strlen(err.detail) > 20);
    }
    assert_true(reversed(true, 3)); /* and what comes after is not disturbed */
}

static void grids_that_cannot_be_are_refused(void **) {
    const struct {
        dim3 grid, block;
        size_t shared;
    } cases[] = {{dim3(0), dim3(32), 0},           {dim3(1), dim3(1025), 0},
                 {dim3(1), dim3(1, 1, 65), 0},     {dim3(1, 65536), dim3(32), 0},
                 {dim3(1, 1, 65536), dim3(32), 0}, {dim3(1), dim3(32), ((size_t)227 << 10) + 1}};
    for (const auto &c : cases) {
        struct blasd_err err = {};
        assert_true(blasd_launch(not_all_meet, c.grid, c.block, c.shared, nullptr, &err, 9) < 0);
        assert_true(err.detail[0] != '\0');
    }
    for (bool alone : {true, false}) {
        struct blasd_err err = {};
        blasd_shim_checks_alone = alone;
        assert_int_equal(blasd_launch(not_all_meet, dim3(3, 65535), dim3(1), 0, nullptr, &err, 9),
                         0);
        assert_int_equal(blasd_launch(not_all_meet, dim3(1), dim3(64), 0, nullptr, &err, 0),
                         alone ? 0 : -(int)BLASD_E_device_error);
    }
}

template <int n> __global__ void with_static(int *seen) {
    BLASD_DYNAMIC_SHARED(int, dynamic);
    BLASD_STATIC_SHARED(double, some, [n]);
    some[threadIdx.x % n] = 1;
    dynamic[threadIdx.x] = 1;
    if (seen != nullptr) *seen = 1;
}

/* Beyond 48 KiB in all, each kernel has to be allowed its dynamic part, in each process. */
static void more_shared_memory_must_be_asked_for(void **) {
    struct blasd_err err = {};
    const size_t limit = 48 << 10;
    int seen = 0;
    blasd_shim_forget_allowed();
    assert_int_equal(blasd_gpu_start(with_static<16>, dim3(1), dim3(4), limit - 128, false, nullptr,
                                     &err, (int *)nullptr),
                     0);
    assert_true(blasd_gpu_start(with_static<16>, dim3(1), dim3(4), limit - 127, false, nullptr,
                                &err, &seen) < 0);
    assert_int_equal(seen, 0);
    assert_non_null(strstr(err.detail, "128 bytes of static"));
    assert_int_equal(
        blasd_launch(with_static<16>, dim3(1), dim3(4), limit - 127, nullptr, &err, &seen), 0);
    assert_int_equal(seen, 1);
    /* another kernel was not allowed it, nor this one more, nor in another process */
    assert_true(blasd_gpu_start(with_static<32>, dim3(1), dim3(4), limit - 127, false, nullptr,
                                &err, (int *)nullptr) < 0);
    assert_true(blasd_gpu_start(with_static<16>, dim3(1), dim3(4), limit, false, nullptr, &err,
                                (int *)nullptr) < 0);
    blasd_shim_forget_allowed();
    assert_true(blasd_gpu_start(with_static<16>, dim3(1), dim3(4), limit - 127, false, nullptr,
                                &err, (int *)nullptr) < 0);
    /* and both together are never more than a block has */
    assert_true(blasd_launch(with_static<16>, dim3(1), dim3(4), blasd_shim_shared_most - 127,
                             nullptr, &err, (int *)nullptr) < 0);
    assert_int_equal(blasd_launch(with_static<16>, dim3(1), dim3(4), blasd_shim_shared_most - 128,
                                  nullptr, &err, (int *)nullptr),
                     0);
    /* what lies beside an element may be loaded with it, so whole loads are asked for */
    assert_int_equal(blasd_launch(with_static<16>, dim3(1), dim3(4), 1756, nullptr, &err, &seen),
                     0);
    assert_int_equal(blasd_shim_allowed((const void *)with_static<16>), 1760);
}

struct warp_results {
    unsigned ballot[64], added[64];
    int down[64], mixed[64], least[64], part[64], count[64];
    double wide[64];
};

__global__ void warp_functions(struct warp_results *r) {
    int t = (int)threadIdx.x, lane = t % 32;
    r->ballot[t] = __ballot_sync(0xffffffffu, lane % 3 == 0);
    r->added[t] = __reduce_add_sync(0xffffffffu, (unsigned)t);
    r->least[t] = __reduce_min_sync(0xffffffffu, 5 - t);
    r->down[t] = __shfl_down_sync(0xffffffffu, t, 3, 8);
    r->mixed[t] = __shfl_xor_sync(0xffffffffu, t, 1) + __shfl_up_sync(0xffffffffu, t, 1);
    r->wide[t] = __shfl_sync(0xffffffffu, t + 0.25, 7);
    if (lane < 8) /* part of a warp */
        r->part[t] = __shfl_sync(0xffu, t, lane + 1, 8) + __all_sync(0xffu, 1);
    r->count[t] = __syncthreads_count(t < 40) + __syncthreads_or(t == 63) * 100;
}

static void warp_functions_do_what_cuda_says(void **) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct warp_results r = {};
        struct blasd_err err = {};
        blasd_shim_seed = seed;
        assert_int_equal(blasd_launch(warp_functions, dim3(1), dim3(64), 0, nullptr, &err, &r), 0);
        for (int t = 0; t < 64; t++) {
            int lane = t % 32, base = t - lane;
            assert_int_equal(r.ballot[t], 0x49249249);
            assert_int_equal(r.added[t], base * 32 + 31 * 16);
            assert_int_equal(r.least[t], 5 - (base + 31));
            assert_int_equal(r.down[t], lane % 8 + 3 < 8 ? t + 3 : t);
            assert_int_equal(r.mixed[t], (t ^ 1) + (lane == 0 ? t : t - 1));
            assert_true(r.wide[t] == base + 7.25);
            if (lane < 8) assert_int_equal(r.part[t], base + (lane + 1) % 8 + 1);
            assert_int_equal(r.count[t], 140);
        }
    }
}

/* Threads that end early are not waited for; blocks add up through atomics in any order. */
__global__ void early_ends(unsigned long long *sum, unsigned *largest) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 5 == 0) return;
    __syncthreads();
    atomicAdd(sum, 1);
    atomicMax(largest, i);
}

static void thousands_of_threads(void **) {
    unsigned long long sum = 0;
    unsigned largest = 0;
    struct blasd_err err = {};
    blasd_shim_seed = 5;
    assert_int_equal(
        blasd_launch(early_ends, dim3(200), dim3(100, 5), 0, nullptr, &err, &sum, &largest), 0);
    /* threadIdx.x counts to 100 in each of five rows */
    assert_int_equal(sum, 200 * 500 / 5 * 4);
    assert_int_equal(largest, 199 * 100 + 99);
}

/* Rounds in which each block adds up what all blocks wrote in the round before. */
template <bool waits> __global__ void rounds(long long *values, int count) {
    BLASD_STATIC_SHARED(long long, own);
    int blocks = (int)gridDim.x;
    if (threadIdx.x == 0) own = blockIdx.x + 1;
    for (int round = 0; round < count; round++) {
        long long *from = values + round % 2 * blocks, *to = values + (round + 1) % 2 * blocks;
        long long sum = 0;
        __syncthreads();
        for (int i = 0; i < blocks; i++) sum += from[i];
        if (threadIdx.x == 3) to[blockIdx.x] = sum % 1000 + own; /* its own of all statics */
        if (waits) blasd_grid_barrier();
    }
}

static bool rounds_are_right(bool waits, uint64_t seed) {
    struct blasd_err err = {};
    std::vector<long long> values(10), expected(10);
    for (size_t i = 0; i < 5; i++) values[i] = expected[i] = (long long)i;
    for (size_t round = 0; round < 7; round++) {
        long long sum = 0;
        for (size_t i = 0; i < 5; i++) sum += expected[round % 2 * 5 + i];
        for (size_t i = 0; i < 5; i++)
            expected[(round + 1) % 2 * 5 + i] = sum % 1000 + (long long)i + 1;
    }
    blasd_shim_seed = seed;
    assert_int_equal(blasd_launch_together(waits ? rounds<true> : rounds<false>, 5, dim3(64),
                                           nullptr, &err, values.data(), 7),
                     0);
    return values == expected;
}

static void blocks_that_run_together_wait_for_each_other(void **) {
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        assert_true(rounds_are_right(true, seed));
        assert_false(rounds_are_right(false, seed));
    }
}

__global__ void some_blocks_wait(int ends) {
    if ((int)blockIdx.x >= ends) blasd_grid_barrier();
}

static void a_grid_barrier_that_not_all_meet_fails(void **) {
    struct blasd_err err = {};
    assert_int_equal(blasd_launch_together(some_blocks_wait, 4, dim3(40), nullptr, &err, 0), 0);
    assert_true(blasd_launch_together(some_blocks_wait, 4, dim3(40), nullptr, &err, 1) < 0);
    assert_non_null(strstr(err.detail, "3 of 4 blocks wait"));
    /* one that runs by itself cannot wait, and no more blocks than run at once can */
    assert_true(blasd_launch(some_blocks_wait, dim3(1), dim3(40), 0, nullptr, &err, 0) < 0);
    assert_non_null(strstr(err.detail, "not launched together"));
    assert_true(blasd_launch_together(some_blocks_wait, 9, dim3(40), nullptr, &err, 9) < 0);
    assert_non_null(strstr(err.detail, "more than run at once"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tree_sum_is_right_in_every_order),
        cmocka_unit_test(a_missing_barrier_shows),
        cmocka_unit_test(a_barrier_missing_at_the_end_of_a_loop_shows),
        cmocka_unit_test(what_cuda_leaves_undefined_fails_with_a_sentence),
        cmocka_unit_test(grids_that_cannot_be_are_refused),
        cmocka_unit_test(more_shared_memory_must_be_asked_for),
        cmocka_unit_test(warp_functions_do_what_cuda_says),
        cmocka_unit_test(thousands_of_threads),
        cmocka_unit_test(blocks_that_run_together_wait_for_each_other),
        cmocka_unit_test(a_grid_barrier_that_not_all_meet_fails),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

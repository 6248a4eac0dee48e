/* What a batch of products is done with: the groups of tasks that run as one call, the way of each,
 * and the addresses it reads. Made by prepare_products (products.cu), run by cuda_matmul.cu. */
#ifndef BLASD_KERNELS_MATMUL_PRODUCTS_CUH
#define BLASD_KERNELS_MATMUL_PRODUCTS_CUH

#include "kernels/matmul/slices.cuh"

/* Products beyond this many operations fill the device by themselves: they join no mixed batch. */
#define COMPANY_FLOPS 2e8

/* Products up to SMALL_SIDE in each length and SMALL_WORK multiplications are made by a kernel of
 * ours, many jobs in one launch, where all of a job is SMALL_JOB multiplications at most. */
#define SMALL_SIDE 128
#define SMALL_WORK (64 * 64 * 64)
#define SMALL_JOB (4 * SMALL_WORK)

/* Which it is follows from the job alone: a library may choose another algorithm for another number
 * of products, so a call of it never holds products of two jobs. */
enum way { WAY_NOTHING, WAY_SLICES, WAY_TINY, WAY_SMALL, WAY_LIBRARY };

/* What a group's tasks have in common, and what is done with them. */
struct group : stack {
    const struct blasd_key *key; /* of its first task */
    enum way way;
    int64_t m, n, items; /* of one task, after joining rows */
    int64_t elements;    /* of one task's result */
    double alpha, beta;  /* of the products themselves */
    int first, count;    /* of the order */
    struct across_tasks a, b, c, out_at, target;
    bool too_large;                 /* for the device */
    void *wide;                     /* float32 results that are yet to be rounded to half */
    enum blasd_dtype made;          /* what the product makes: `out`, or wide */
    struct blasd_gpu_gemm gemm;     /* WAY_LIBRARY: of one job, but for its addresses */
    const struct tiny_batch *small; /* WAY_SMALL, on the device: of this group and others like it */
    int small_count;                /* 0: another group's launch does it */
    int64_t small_blocks;
};

struct product_plan {
    struct group *groups;
    int group_count, *order, *group_of; /* tasks, group by group; of each task */
    enum blasd_gpu_rounding rounding;
};

/* A job that takes more than half of the device comes in tiles. */
static inline bool too_large(const struct blasd_task *task, const struct blasd_gpu_facts *facts) {
    return task->plan->device_bytes > facts->memory_bytes / 2;
}

/* Memory of the host that lives as long as the batch. */
int take_host(struct blasd_cuda_job *job, size_t count, size_t size, void **ret,
              struct blasd_err *err);

/* The products of a group as the device code wants them. */
struct tiny_batch tiny_batch_of(const struct group *group);

/* The operation's `prepare`: leaves the struct product_plan in job->state. */
int prepare_products(struct blasd_cuda_job *job, struct blasd_err *err);

#endif

/* What a backend is: something that runs batches of jobs on a device.
 *
 * A backend is linked in (cpu) or loaded by the worker (cuda). For each operation it supports it
 * has one kernel. Read next: ../../kernels/README.md, or ../worker/worker.h for who calls this. */
#ifndef BLASD_CORE_KERNEL_H
#define BLASD_CORE_KERNEL_H

#include "base/err.h"
#include "core/job.h"
#include "core/record.h"

#define BLASD_BACKEND_ABI 15

/* What a look at the elements of a value finds: positions, -1 where there is none, and sizes. */
struct blasd_seen {
    int64_t first_nonfinite, first_negative, first_not_positive, first_nonzero, first_zero;
    double least,
        most; /* magnitudes of finite elements but zeros; INFINITY and 0: there are none */
};

/* An output that jobs to come read as an input of this name: it may be resident, left on the device
 * where they will need it. */
struct blasd_resident {
    const struct blasd_key *name; /* borrowed; NULL: it may not */
    /* By the kernel: it is on the device alone. The task's memory holds anything until the device
     * is asked for the value, or lacks room for it; it is borrowed until then, or until the
     * name is forgotten. */
    bool device_only;
    struct blasd_seen seen; /* of one that is */
};

struct blasd_device; /* a backend's own */

/* One job inside a batch. The worker fills the first part, the kernel the second. */
struct blasd_task {
    const struct blasd_job *job;   /* borrowed */
    const struct blasd_plan *plan; /* borrowed */
    /* dense, in plan->input_dtype, row-major unless plan->keep_order; data NULL: not given */
    struct blasd_tensor inputs[BLASD_MAX_INPUTS];
    /* of these, a bit each, those whose memory holds anything yet: the backend makes the elements
     * by the job's rule, there or where it computes. Only of its kernel's makes_inputs */
    unsigned unmade;
    /* of those, a bit each, that are resident on the device alone: set by the backend; and how the
     * host comes by them */
    unsigned device_only;
    int (*to_host)(struct blasd_task *task, struct blasd_err *err);
    struct blasd_device *device; /* borrowed; for `to_host` */
    /* names of what the inputs hold, each beginning with the id of the tensor or job it is from:
     * inputs of the same name have the same bytes, whenever; NULL: nobody has named it. Borrowed.
     */
    const struct blasd_key *names[BLASD_MAX_INPUTS];
    /* dense, row-major, data aligned to 64 bytes; rank -1: absent. The memory holds anything. */
    struct blasd_tensor outputs[BLASD_MAX_OUTPUTS];
    struct blasd_resident *residents; /* of each output; borrowed; NULL: none may be resident */

    struct blasd_err err; /* set its code where this job fails; the others go on */
    char method[BLASD_METHOD_MAX];
    struct blasd_warning warnings[BLASD_MAX_WARNINGS];
    int warning_count;
    /* a kernel that moves data itself (cuda) says how long it took, and how long it computed; where
     * all three are 0 all is compute. What they leave of the time it had was waiting its turn */
    int64_t upload_us, download_us, compute_us;
    uint64_t upload_bytes, download_bytes; /* over the bus, for the batch */
    double energy_joules;                  /* of the device, for the batch; 0: it does not tell */
    /* of a job that fails: bytes that its record has beside the error (a graph's report of its
     * steps); borrowed from the memory of the batch. NULL: none */
    const void *told;
    uint64_t told_bytes;
};

/* What the kernel fills is as if it had not run, the outputs aside, of which none is resident. */
void blasd_task_reset(struct blasd_task *task);
/* Makes the elements of inputs that a rule makes and nobody made yet, and brings those that are on
 * the device alone, to the task's memory: before the host looks at them. Where that fails the task
 * does. */
void blasd_task_make_inputs(struct blasd_task *task);
/* Adds a warning; of more than BLASD_MAX_WARNINGS the last says that others are left out. */
void blasd_task_warn(struct blasd_task *task, enum blasd_warning_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* What a running kernel may ask of the worker. */
struct blasd_watch {
    /* Reports progress (0 to 1) of the batch and tells whether to go on: false once every job in
     * the batch has been cancelled or has expired. Cheap: call it each few milliseconds. */
    bool (*go_on)(struct blasd_watch *watch, double progress);
    /* Optional. How many batches share the device's units now, this one included: a loop is to take
     * its part of them. Asked when a loop begins, by the thread that called the kernel. */
    int (*sharers)(struct blasd_watch *watch);
    void *owner; /* whoever set `sharers` */
};

struct blasd_device_info {
    char id[16]; /* "cpu:0" */
    char name[64];
    char
        libraries[80]; /* versions of the driver and of what computes; measurements hold for them */
    /* on a CPU: what multiplies matrices, for which processor it does so, who chose that; else ""
     */
    char blas_library[64], blas_core[24], blas_chosen_by[16];
    enum blasd_device_class device_class;
    int units; /* cores or multiprocessors */
    uint64_t memory_bytes, memory_free_bytes;
    double gflops_float64, gflops_float32; /* the best seen; 0: none */
    double copy_gbytes_s;                  /* measured: host to device, or memory to memory; or 0 */
    /* as the device's own counters say; busy: -1, the others 0, where it has none */
    int busy_percent;     /* of the last moments in which anything ran on it; not how full it was */
    double power_watts;   /* now */
    double energy_joules; /* since it was started */
    char remark[160];     /* what an operator should hear of, once; "": nothing */
};

/* Runs `count` tasks of one operation with equal keys as one call. Returns 0, also where single
 * tasks failed (their err is set); a negative code means that the whole batch failed, with
 * BLASD_E_device_error for a device that cannot go on. */
typedef int (*blasd_kernel_run)(struct blasd_device *device, struct blasd_task *tasks, int count,
                                struct blasd_watch *watch, struct blasd_err *err);

struct blasd_async_batch; /* a batch that has begun; a backend's own */

struct blasd_kernel {
    const char *op;
    blasd_kernel_run run;
    /* Optional, both or neither, for a device that works while the host goes on: begin puts a batch
     * in hand and returns, end waits for it, fills its tasks as run does, and frees `*ret`. Tasks,
     * tensors and watch stay as they are in between. Batches end in the order in which they began,
     * at most two at a time; begin may wait for the one before. Where begin fails there is nothing
     * to end; where end fails the batch can be tried again with run. */
    int (*begin)(struct blasd_device *device, struct blasd_task *tasks, int count,
                 struct blasd_watch *watch, struct blasd_async_batch **ret, struct blasd_err *err);
    int (*end)(struct blasd_async_batch *batch, struct blasd_err *err);
    /* Optional, for a kernel that takes jobs of different keys in one call: `ret` holds plan->key;
     * a coarser key instead says what may share a call on this device. */
    void (*batch_key)(const struct blasd_job *job, const struct blasd_plan *plan,
                      struct blasd_key *ret);
    /* Optional, for a kernel that reads an input in another dtype than the operation planned: sets
     * plan->input_dtype, and device_bytes where they change. Called once, before `batch_key`. */
    void (*adapt)(const struct blasd_job *job, struct blasd_plan *plan);
    /* Inputs, a bit each, whose elements it makes itself where a rule does (task->unmade), and
     * which may be on the device alone: the host looks at them after blasd_task_make_inputs only.
     * All others lie in memory when a batch begins. */
    unsigned makes_inputs;
};

struct blasd_backend {
    int abi;          /* BLASD_BACKEND_ABI */
    const char *name; /* "cpu" */
    enum blasd_device_class device_class;
    /* Devices here, at least one; a negative code where there are none that can be counted, with
     * what is wrong and what to do about it. */
    int (*device_count)(struct blasd_err *err);
    /* Optional. Whether a device can be used, without opening it: 0, or a negative code with why
     * not. device_open refuses for the same reasons. */
    int (*device_check)(int ordinal, struct blasd_err *err);
    int (*device_open)(int ordinal, struct blasd_device **ret, struct blasd_err *err);
    void (*device_close)(struct blasd_device *device);
    /* `measure`: also times the device, which takes up to a second. */
    int (*device_info)(struct blasd_device *device, bool measure, struct blasd_device_info *info,
                       struct blasd_err *err);
    /* Optional. The ids that the names of inputs begin with of which the device keeps a copy, the
     * one used last first; returns how many. */
    int (*device_kept)(const struct blasd_device *device, char (*ids)[BLASD_ID_LEN + 1], int most);
    /* Optional, both or neither, for a device with resident outputs (blasd_resident). Copies one to
     * the memory of its task, if it is not there. Forgets those whose names begin so, and copies of
     * inputs too; with NULL, gives up the memory of what was forgotten, else kept for the next. */
    int (*resident_to_host)(struct blasd_device *device, const struct blasd_key *name,
                            struct blasd_err *err);
    void (*resident_forget)(struct blasd_device *device, const struct blasd_key *prefix);
    /* Optional, both or neither, for a device that copies by itself: memory in which inputs and
     * outputs may lie, from a page's first byte on. It stays mapped, to the same pages, until it is
     * said to go, which is not while a batch that uses it has not ended. Any thread may call them.
     */
    void (*memory_comes)(struct blasd_device *device, void *memory, uint64_t bytes, bool writable);
    void (*memory_goes)(struct blasd_device *device, void *memory);
    const struct blasd_kernel *const *kernels; /* ended by NULL; all static */
    /* one ordinal may be opened twice, and the two run batches at once from two threads: the worker
     * then has a slow pool of its own for what takes long */
    bool side_by_side;
};

/* The backend for machines without a GPU. */
extern const struct blasd_backend blasd_backend_cpu;

/* The kernel of `op` in `backend`, or NULL. */
const struct blasd_kernel *blasd_backend_kernel(const struct blasd_backend *backend,
                                                const struct blasd_op *op);

#endif

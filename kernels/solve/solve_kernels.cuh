/* solve's kernels: whole systems in one launch up to 256 unknowns, and the steps before and after
 * the library's factors above.
 *
 * Read next: cuda_solve.cu, which chooses. */
#ifndef BLASD_KERNELS_SOLVE_KERNELS_CUH
#define BLASD_KERNELS_SOLVE_KERNELS_CUH

#include "kernels/cuda/mixed_batch.cuh"
#include "kernels/solve/solve_small.cuh"

#define SOLVE_COLUMNS_EACH 8 /* columns that a block takes, where columns are shared out */
#define SOLVE_WALK_MOST 8
#define SMALL_THREADS 64
#define SOLVE_GRID_MOST (1 << 16)

/* One tensor of each task, at even steps. */
struct solve_tensor {
    char *base;
    int64_t step; /* bytes */
};

/* The systems of all tasks of a batch, and where their results go. */
struct solve_batch {
    struct solve_shape shape;
    struct solve_tensor a, b, x, info, rcond, error, steps, method;
    int *flags;                    /* of each system */
    int64_t items, a_items, total; /* of one task; matrices of one task; of all tasks */
    int walk_rank;                 /* how a task's systems take their matrices and columns */
    int64_t walk[SOLVE_WALK_MOST], walk_a[SOLVE_WALK_MOST], walk_b[SOLVE_WALK_MOST];
    bool left;     /* solve_by_blocks: only what solve_small has left */
    void *factors; /* solve_by_blocks: room for each block */
};

/* In prepare only. `single`: float32. Systems of up to 32 unknowns. */
int solve_share_small(struct blasd_cuda_job *job, const struct solve_batch *batch, bool single,
                      struct blasd_err *err);

static __device__ inline int64_t walk_item(const struct solve_batch &batch, const int64_t *steps,
                                           int64_t at) {
    int64_t sum = 0;
    for (int d = batch.walk_rank - 1; d >= 0; d--) {
        sum += at % batch.walk[d] * steps[d];
        at /= batch.walk[d];
    }
    return sum;
}
template <class T>
static __device__ inline T *solve_at(const struct solve_tensor &tensor, int64_t task, int64_t at) {
    return reinterpret_cast<T *>(tensor.base + task * tensor.step) + at;
}
template <class T>
static __device__ inline const T *matrix_of(const struct solve_batch &batch, int64_t system) {
    int64_t task = system / batch.items, n = batch.shape.n;
    return solve_at<T>(batch.a, task, walk_item(batch, batch.walk_a, system % batch.items) * n * n);
}
template <class T>
static __device__ inline const T *columns_of(const struct solve_batch &batch, int64_t system) {
    int64_t task = system / batch.items, each = (int64_t)batch.shape.n * batch.shape.columns;
    return solve_at<T>(batch.b, task, walk_item(batch, batch.walk_b, system % batch.items) * each);
}
template <class T>
static __device__ inline T *solution_of(const struct solve_batch &batch, int64_t system) {
    int64_t each = (int64_t)batch.shape.n * batch.shape.columns;
    return solve_at<T>(batch.x, system / batch.items, system % batch.items * each);
}

/* Writes what came of a system; one thread. */
static __device__ inline void report(const struct solve_batch &batch, int64_t system,
                                     const struct solve_matrix &matrix,
                                     const struct solve_outcome &outcome) {
    int64_t task = system / batch.items, at = system % batch.items;
    *solve_at<int64_t>(batch.info, task, at) = 0;
    *solve_at<double>(batch.rcond, task, at) = matrix.rcond;
    *solve_at<double>(batch.error, task, at) = outcome.error;
    *solve_at<int64_t>(batch.steps, task, at) = outcome.steps;
    *solve_at<int64_t>(batch.method, task, at) = matrix.method;
    batch.flags[system] = (matrix.unsymmetric ? BLASD_SOLVE_UNSYMMETRIC : 0) |
                          (outcome.left ? BLASD_SOLVE_LEFT : 0) |
                          (outcome.settled ? BLASD_SOLVE_SETTLED : 0);
}

/* ---- room ---- */

/* Takes arrays one after the other. */
struct solve_carver {
    unsigned char *at;
    template <class T> __device__ vector_view<T> take(int count) {
        T *p = reinterpret_cast<T *>(at);
        at += (int64_t)count * (int)sizeof(T);
        return {p, 1};
    }
};

/* Whether a block factors such a system, by panels. */
static __host__ __device__ inline bool solve_has_panels(const struct solve_shape &shape) {
    return shape.n <= SOLVE_BLOCK_MOST && shape.assume != BLASD_ASSUME_POSITIVE_DEFINITE;
}
template <class T>
static __host__ __device__ inline int64_t solve_room_bytes(const struct solve_shape &shape) {
    int64_t strip = solve_has_panels(shape)
                        ? solve_strip_count<T>(shape.n) * (int64_t)sizeof(solve_pack<T>)
                        : 0;
    int64_t bytes = (8 + 5 * (int64_t)sizeof(T) + 8) * shape.n + strip;
    return (bytes + 15) / 16 * 16;
}

template <class T>
static __device__ inline struct solve_room<T> carve(struct solve_carver from,
                                                    const struct solve_shape &shape) {
    struct solve_room<T> room = {};
    int n = shape.n;
    if (solve_has_panels(shape))
        room.strip = from.take<solve_pack<T>>((int)solve_strip_count<T>(n)).p;
    room.v = from.take<double>(n);
    room.x = from.take<T>(n);
    room.b = from.take<T>(n);
    room.r = from.take<T>(n);
    room.d = from.take<T>(n);
    room.y = from.take<T>(n);
    room.order = from.take<int>(n);
    room.swaps = from.take<int>(n);
    return room;
}

/* Numbers that the factors of a system take in global memory. */
static __host__ __device__ inline int64_t
solve_factors_count(int64_t n) {
    return n * n + solve_diagonal_count(n);
}

/* ---- everything in one launch ---- */

template <class T>
static __device__ void solve_one(const team_of_block &team, const struct solve_batch &batch,
                                 const struct solve_room<T> &room, int64_t system) {
    solver<T> s(team, batch.shape, room, matrix_of<T>(batch, system));
    struct solve_outcome outcome = {};
    s.prepare();
    if (!s.state.left) s.factor();
    if (!s.state.left) s.estimate();
    solve_all_columns(s, columns_of<T>(batch, system), solution_of<T>(batch, system), 0,
                      batch.shape.columns, &outcome);
    if (team.rank() == 0) report(batch, system, s.state, outcome);
    team.sync();
}

/* What small_system does; the flags of what it leaves say so. The teams of a warp go through all of
 * it together, those without a system of their own with the last one. */
template <int W, int N, class T>
__global__ void __launch_bounds__(SMALL_THREADS, W > 8 ? 4 : 6)
    solve_small(const blasd_share<solve_batch> *shares, int count) {
    BLASD_STATIC_SHARED(T, factors, [SMALL_THREADS / W][N * (N + 1)]);
    const blasd_share<solve_batch> &share = blasd_share_of(shares, count);
    const struct solve_batch &batch = share.args;
    const struct solve_shape &shape = batch.shape;
    int teams = SMALL_THREADS / W, mine = (int)threadIdx.x % BLASD_WARP / W;
    struct small_system<W, N, T> s;
    s.factors = factors[threadIdx.x / W];
    s.team.in_step();
    s.n = shape.n;
    s.lane = s.team.rank();
    for (int64_t first = share.block() * teams + threadIdx.x / BLASD_WARP * (BLASD_WARP / W);
         first < batch.total; first += share.blocks() * teams) {
        int64_t at = first + mine < batch.total ? first + mine : batch.total - 1;
        bool own = at == first + mine, good;
        const T *b = columns_of<T>(batch, at);
        struct solve_matrix state = {};
        struct solve_outcome outcome = {};
        double shrinks;
        s.own = matrix_of<T>(batch, at) + s.lane * shape.a_row;
        s.own_step = (int)shape.a_column;
        BLASD_UNROLL
        for (int j = 0; j < N; j++)
            s.f[j] = s.here() && j < s.n ? s.element(j) : (T)(s.lane == j ? 1 : 0);
        s.team.sync(); /* the factors of the system before are read no more */
        good = s.measure();
        good = s.factor() && good;
        state.rcond = s.rcond();
        shrinks = s.contraction(state.rcond);
        good = good && !blasd_solve_is_open(s.n, precision<T>::unit, state.rcond, shrinks);
        outcome.settled = shape.refinement != BLASD_REFINE_NONE;
        state.method = BLASD_SOLVED_LU;
        BLASD_UNROLL_NOT
        for (int c = 0; c < shape.columns; c++) {
            T x = s.here() ? __ldg(b + s.lane * shape.b_row + c * shape.b_column) : (T)0;
            bool refine = shape.refinement != BLASD_REFINE_NONE;
            double error;
            int steps;
            good = s.solve_column(x, refine, shrinks, &x, &error, &steps) && good;
            if (!(error <= outcome.error)) outcome.error = error;
            if (steps > outcome.steps) outcome.steps = steps;
            if (s.here() && own) solution_of<T>(batch, at)[s.lane * shape.columns + c] = x;
        }
        if (s.lane != 0 || !own) continue;
        if (good)
            report(batch, at, state, outcome);
        else
            batch.flags[at] = BLASD_SOLVE_LEFT;
    }
}

/* A block a system, with its factors in global memory. */
template <class T>
__global__ void __launch_bounds__(SOLVE_BLOCK_MOST, 2)
    solve_by_blocks(const blasd_share<solve_batch> *shares, int count) {
    BLASD_DYNAMIC_SHARED(unsigned char, shared);
    const blasd_share<solve_batch> &share = blasd_share_of(shares, count);
    const struct solve_batch &batch = share.args;
    int n = batch.shape.n;
    struct solve_room<T> room = carve<T>(solve_carver{shared}, batch.shape);
    team_of_block team;
    T *own = static_cast<T *>(batch.factors) + share.block() * solve_factors_count(n);
    room.f = {own, 1, n};
    room.diagonal = {own + n * n, SOLVE_DIAGONAL, 1};
    for (int64_t s = share.block(); s < batch.total; s += share.blocks())
        if (!batch.left || batch.flags[s] == BLASD_SOLVE_LEFT) solve_one(team, batch, room, s);
}

/* ---- in steps, with factors in global memory ---- */

/* What the steps hand on. Matrices are numbered from 0, systems from `first`. */
struct solve_steps {
    struct solve_batch batch;
    bool shared_matrices; /* number them as the job has them; else each system has its own */
    int64_t first, systems, matrices;
    void *factors;  /* n x n for each matrix */
    void *diagonal; /* solve_diagonal_count(n) for each */
    int *order;     /* n for each */
    struct solve_matrix *states;
    struct solve_outcome *outcomes; /* for each system and its blocks of columns */
    int parts;                      /* such blocks */
    bool by_library;                /* the factors come from a call, with these: */
    const int *pivots, *info;
    const int64_t *wide_pivots;
};

template <class T>
static __device__ inline solve_room<T> room_of_step(const struct solve_steps &steps,
                                                    unsigned char *shared, int64_t matrix) {
    int n = steps.batch.shape.n;
    struct solve_room<T> room = carve<T>(solve_carver{shared}, steps.batch.shape);
    room.f = {static_cast<T *>(steps.factors) + matrix * n * n, 1, n};
    room.diagonal = {static_cast<T *>(steps.diagonal) + matrix * solve_diagonal_count(n),
                     SOLVE_DIAGONAL, 1};
    room.order = {steps.order + matrix * n, 1};
    return room;
}

template <class T>
static __device__ inline const T *matrix_of_step(const struct solve_steps &steps, int64_t matrix) {
    int64_t n = steps.batch.shape.n, each = steps.batch.a_items;
    if (!steps.shared_matrices) return matrix_of<T>(steps.batch, steps.first + matrix);
    return solve_at<T>(steps.batch.a, matrix / each, matrix % each * n * n);
}

/* Step 1: measures the matrices and brings them to where their factors will be. */
template <class T>
__global__ void __launch_bounds__(256) solve_step_load(struct solve_steps steps) {
    BLASD_DYNAMIC_SHARED(unsigned char, shared);
    team_of_block team;
    for (int64_t m = blockIdx.x; m < steps.matrices; m += gridDim.x) {
        solver<T> s(team, steps.batch.shape, room_of_step<T>(steps, shared, m),
                    matrix_of_step<T>(steps, m));
        s.prepare();
        if (team.rank() == 0) steps.states[m] = s.state;
        team.sync();
    }
}

/* What the library left: the swaps as an order, and whether it failed. */
template <class T>
static __device__ void take_factors(solver<T> &s, const struct solve_steps &steps, int64_t m) {
    int n = s.n();
    s.state.left = s.state.left || steps.info[m] != 0;
    s.state.method = BLASD_SOLVED_CHOLESKY;
    if (s.shape.assume == BLASD_ASSUME_POSITIVE_DEFINITE) return;
    for (int i = s.team.rank(); i < n; i += s.team.size()) {
        s.room.swaps[i] = steps.wide_pivots != nullptr ? (int)steps.wide_pivots[m * n + i] - 1
                                                       : steps.pivots[m * n + i] - 1;
        s.room.order[i] = i;
    }
    s.team.sync();
    for (int i = 0; s.team.rank() == 0 && i < n; i++) {
        int other = s.room.swaps[i], keep = s.room.order[i];
        s.room.order[i] = s.room.order[other];
        s.room.order[other] = keep;
    }
    s.team.sync();
    s.state.method = BLASD_SOLVED_LU;
}

/* Step 2: factors, where no library made them, and the condition. */
template <class T>
__global__ void __launch_bounds__(256) solve_step_factor(struct solve_steps steps) {
    BLASD_DYNAMIC_SHARED(unsigned char, shared);
    team_of_block team;
    for (int64_t m = blockIdx.x; m < steps.matrices; m += gridDim.x) {
        solver<T> s(team, steps.batch.shape, room_of_step<T>(steps, shared, m),
                    matrix_of_step<T>(steps, m));
        s.state = steps.states[m];
        if (steps.by_library)
            take_factors(s, steps, m);
        else if (!s.state.left)
            s.factor();
        if (!s.state.left) s.estimate();
        team.sync();
        if (team.rank() == 0) steps.states[m] = s.state;
        team.sync();
    }
}

/* Step 3: some columns of a system for each block. */
template <class T>
__global__ void __launch_bounds__(256) solve_step_columns(struct solve_steps steps) {
    BLASD_DYNAMIC_SHARED(unsigned char, shared);
    team_of_block team;
    int columns = steps.batch.shape.columns;
    for (int64_t at = blockIdx.x; at < steps.systems * steps.parts; at += gridDim.x) {
        int64_t system = steps.first + at / steps.parts, task = system / steps.batch.items;
        int part = (int)(at % steps.parts), from = part * SOLVE_COLUMNS_EACH;
        int to = from + SOLVE_COLUMNS_EACH < columns ? from + SOLVE_COLUMNS_EACH : columns;
        int64_t m = at / steps.parts;
        if (steps.shared_matrices)
            m = task * steps.batch.a_items +
                walk_item(steps.batch, steps.batch.walk_a, system % steps.batch.items);
        solver<T> s(team, steps.batch.shape, room_of_step<T>(steps, shared, m),
                    matrix_of_step<T>(steps, m));
        struct solve_outcome outcome = {};
        s.state = steps.states[m];
        solve_all_columns(s, columns_of<T>(steps.batch, system),
                          solution_of<T>(steps.batch, system), from, to, &outcome);
        if (team.rank() == 0) steps.outcomes[at] = outcome;
        team.sync();
    }
}

/* Step 4: the columns' outcomes become the systems'. A thread a system. */
template <class T>
__global__ void __launch_bounds__(256) solve_step_report(struct solve_steps steps) {
    for (int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x; at < steps.systems;
         at += (int64_t)gridDim.x * 256) {
        int64_t system = steps.first + at, task = system / steps.batch.items, m = at;
        struct solve_outcome all = {};
        if (steps.shared_matrices)
            m = task * steps.batch.a_items +
                walk_item(steps.batch, steps.batch.walk_a, system % steps.batch.items);
        for (int part = 0; part < steps.parts; part++) {
            const struct solve_outcome &one = steps.outcomes[at * steps.parts + part];
            if (!(one.error <= all.error)) all.error = one.error;
            if (one.steps > all.steps) all.steps = one.steps;
            all.left = all.left || one.left;
            all.settled = (part == 0 || all.settled) && one.settled;
        }
        report(steps.batch, system, steps.states[m], all);
    }
}

#endif

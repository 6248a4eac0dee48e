/* The fibers behind shim.h: one block at a time, its threads in an order drawn from the seed; of a
 * grid that was launched together all blocks, each running until its threads wait for the others.
 *
 * For tests only. On x86-64 a switch is a dozen instructions of ours, elsewhere ucontext. */
#include "kernels/cuda/shim.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

/* SHIM_ASAN: what runs in the fibers is sanitized; mk/cuda.mk */
#ifdef SHIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
/* BLASD_SHIM_SEED=n in the environment sets it */
uint64_t blasd_shim_seed =
    getenv("BLASD_SHIM_SEED") != nullptr ? strtoull(getenv("BLASD_SHIM_SEED"), nullptr, 10) : 2;

size_t blasd_shim_shared_most = 227 << 10;
uint64_t blasd_shim_launches;
bool blasd_shim_checks_alone;

namespace {

constexpr size_t STACK = 256 << 10, GUARD = 4096;
constexpr int MOST_THREADS = 1024, WARP = 32; /* of a block */
constexpr int MOST_TOGETHER = 8;              /* blocks */
constexpr size_t SHARED_UNASKED = 48 << 10;

enum state { READY, AT_BARRIER, AT_GRID_BARRIER, AT_MEETING, OVER };

struct context {
#if defined(__x86_64__)
    void *at;
#else
    ucontext_t at;
#endif
    void *fake; /* the sanitizer's */
};

struct fiber {
    struct context context;
    char *stack;
    enum state state;
    uint3 index;
    /* the meeting it waits at */
    enum blasd_shim_meeting what;
    unsigned mask;
    uint64_t value, result;
    int source;
};

struct warp {
    unsigned alive, waiting;
};

/* A block that runs: one, or all of a grid that was launched together. */
struct block {
    uint3 index;
    struct fiber fibers[MOST_THREADS];
    struct warp warps[MOST_THREADS / WARP];
    int alive, at_barrier, at_grid_barrier, true_values, counted;
    /* fiber numbers, as a ring */
    int ready[MOST_THREADS], first, ready_count;
    unsigned char *dynamic_shared;
    std::map<const void *, std::vector<unsigned char>> static_shared; /* while another one runs */
};

struct block blocks[MOST_TOGETHER];
struct block *now = blocks; /* the block that runs */
struct fiber *fibers = blocks[0].fibers;
struct warp *warps = blocks[0].warps;
struct context home; /* of the scheduler */
const void *home_bottom;
size_t home_size;
bool from_home;                 /* whoever runs was gone to from there */
int threads, current, together; /* together: blocks that run at once; 0: one after the other */
uint64_t random_state;
const std::function<void()> *body;
char failure[256];

/* What is known of a kernel's launches. */
struct sharing {
    size_t allowed; /* dynamic shared memory; 0: it was not asked */
    size_t most;    /* dynamic, of any launch */
    int threads;    /* of a block, at most */
    std::map<const void *, size_t> variables;
    size_t static_bytes;
};
std::map<const void *, struct sharing> kernels;
/* BLASD_SHIM_LAUNCHES=FILE in the environment: at the end of the process FILE gets a line for each
 * kernel, for tests/gpu/launches.py: where it is in the program, threads, dynamic shared memory. */
extern "C" char __executable_start __attribute__((weak)); /* a shared object has none */
struct recorder {
    ~recorder() {
        const char *path = getenv("BLASD_SHIM_LAUNCHES");
        FILE *file = path != nullptr ? fopen(path, "a") : nullptr;
        if (file == nullptr) return;
        for (const auto &[kernel, sharing] : kernels)
            fprintf(file, "%zx %d %zu\n", (size_t)((const char *)kernel - &__executable_start),
                    sharing.threads, sharing.most);
        fclose(file);
    }
} recorder;
struct sharing *sharing_now; /* of the kernel that runs */
size_t dynamic_now, allowed_now;

#if defined(__x86_64__)
extern "C" void blasd_shim_switch(void **from, void *to);
asm(".text\n.p2align 4\n.globl blasd_shim_switch\n.hidden blasd_shim_switch\n"
    ".type blasd_shim_switch,@function\nblasd_shim_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size blasd_shim_switch, .-blasd_shim_switch\n");
#endif

void go(struct context *from, struct context *to, bool last, const void *bottom, size_t size) {
#ifdef SHIM_ASAN
    __sanitizer_start_switch_fiber(last ? nullptr : &from->fake, bottom, size);
#else
    (void)last, (void)bottom, (void)size;
#endif
#if defined(__x86_64__)
    blasd_shim_switch(&from->at, to->at);
#else
    swapcontext(&from->at, &to->at);
#endif
#ifdef SHIM_ASAN
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}

void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void fail(const char *fmt, ...) {
    va_list args;
    if (failure[0] != '\0') return;
    va_start(args, fmt);
    vsnprintf(failure, sizeof failure, fmt, args);
    va_end(args);
}

uint64_t draw() {
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void make_ready(int i) {
    fibers[i].state = READY;
    now->ready[(now->first + now->ready_count++) % MOST_THREADS] = i;
}

int next_ready() {
    int *ready = now->ready, picked;
    if (blasd_shim_seed == 1) return ready[(now->first + --now->ready_count) % MOST_THREADS];
    if (blasd_shim_seed > 1) {
        int other =
            (now->first + (int)((draw() >> 32) * (uint64_t)now->ready_count >> 32)) % MOST_THREADS;
        picked = ready[other];
        ready[other] = ready[now->first];
        ready[now->first] = picked;
    }
    picked = ready[now->first];
    now->first = (now->first + 1) % MOST_THREADS;
    now->ready_count--;
    return picked;
}

/* From the thread that runs to the next one that can, or home where there is none. */
void leave(bool last) {
    struct fiber *me = &fibers[current], *next;
    if (now->ready_count == 0 || failure[0] != '\0') {
        go(&me->context, &home, last, home_bottom, home_size);
        return;
    }
    current = next_ready();
    next = &fibers[current];
    threadIdx = next->index;
    from_home = false;
    if (next != me) go(&me->context, &next->context, last, next->stack, STACK);
}

/* Every thread that has not ended waits at the barrier: they all go on. */
void barrier_check() {
    if (now->alive == 0 || now->at_barrier < now->alive) return;
    now->counted = now->true_values;
    now->at_barrier = now->true_values = 0;
    for (int i = 0; i < threads; i++)
        if (fibers[i].state == AT_BARRIER) make_ready(i);
}

uint64_t reduce(enum blasd_shim_meeting what, uint64_t a, uint64_t b) {
    switch (what) {
    case BLASD_SHIM_ADD: return a + b;
    case BLASD_SHIM_MIN: return (uint32_t)b < (uint32_t)a ? b : a;
    case BLASD_SHIM_MAX: return (uint32_t)b > (uint32_t)a ? b : a;
    case BLASD_SHIM_MINS: return (int32_t)b < (int32_t)a ? b : a;
    case BLASD_SHIM_MAXS: return (int32_t)b > (int32_t)a ? b : a;
    case BLASD_SHIM_AND: return a & b;
    case BLASD_SHIM_XOR: return a ^ b;
    default: return a | b;
    }
}

/* The lanes in `need` have all arrived: works out what each is given, and lets them go on. */
void meeting_ends(int warp, unsigned need) {
    struct fiber *lanes = &fibers[warp * WARP];
    enum blasd_shim_meeting what = lanes[__builtin_ctz(need)].what;
    uint64_t all = 0;
    bool begun = false;
    for (int i = 0; i < WARP; i++) {
        if ((need >> i & 1) == 0) continue;
        if (lanes[i].what != what) fail("lanes of a warp met in different functions");
        if (what == BLASD_SHIM_BALLOT)
            all |= lanes[i].value << i;
        else
            all = begun ? reduce(what, all, lanes[i].value) : lanes[i].value;
        begun = true;
    }
    for (int i = 0; i < WARP; i++) {
        if ((need >> i & 1) == 0) continue;
        lanes[i].result = all;
        if (what == BLASD_SHIM_SHUFFLE) {
            int source = lanes[i].source;
            if (source < 0 || source >= WARP || (need >> source & 1) == 0)
                fail("lane %d shuffles from lane %d, which is not there", i, source);
            else
                lanes[i].result = lanes[source].value;
        }
    }
    warps[warp].waiting &= ~need;
    for (int i = 0; i < WARP; i++)
        if ((need >> i & 1) != 0) make_ready(warp * WARP + i);
}

void meeting_check(int warp, unsigned mask) {
    unsigned need = mask & warps[warp].alive;
    if (need == 0 || (warps[warp].waiting & need) != need) return;
    for (int i = 0; i < WARP; i++)
        if ((need >> i & 1) != 0 && fibers[warp * WARP + i].mask != mask) return;
    meeting_ends(warp, need);
}

void thread_over() {
    struct warp *warp = &warps[current / WARP];
    fibers[current].state = OVER;
    now->alive--;
    warp->alive &= ~(1u << current % WARP);
    barrier_check();
    for (unsigned left = warp->waiting; left != 0; left &= left - 1)
        meeting_check(current / WARP, fibers[current / WARP * WARP + __builtin_ctz(left)].mask);
}

extern "C" void blasd_shim_enter(void) {
#ifdef SHIM_ASAN
    const void *bottom;
    size_t size;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
    if (from_home) {
        home_bottom = bottom;
        home_size = size;
    }
#endif
    (*body)();
    thread_over();
    leave(true);
    __builtin_unreachable();
}

void fiber_start(struct fiber *fiber) {
#ifdef SHIM_ASAN
    /* one that came to its end has left only its first frames poisoned */
    constexpr size_t first_frames = 4096;
    size_t poisoned = fiber->state == OVER ? first_frames : STACK;
    __asan_unpoison_memory_region(fiber->stack + STACK - poisoned, poisoned);
#endif
#if defined(__x86_64__)
    void **top = (void **)(void *)(fiber->stack + STACK) - 8;
    for (int i = 0; i < 6; i++) top[i] = nullptr;
    top[6] = (void *)blasd_shim_enter; /* returned to with the stack as after a call */
    top[7] = nullptr;
    fiber->context.at = top;
#else
    getcontext(&fiber->context.at);
    fiber->context.at.uc_stack.ss_sp = fiber->stack;
    fiber->context.at.uc_stack.ss_size = STACK;
    fiber->context.at.uc_link = nullptr;
    makecontext(&fiber->context.at, blasd_shim_enter, 0);
#endif
    fiber->context.fake = nullptr;
}

bool have_stacks(int count) {
    for (int i = 0; i < count; i++) {
        void *memory;
        if (fibers[i].stack != nullptr) continue;
        memory = mmap(nullptr, GUARD + STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (memory == MAP_FAILED || mprotect(memory, GUARD, PROT_NONE) != 0) {
            fail("no memory for the stacks of %d threads", count);
            return false;
        }
        fibers[i].stack = (char *)memory + GUARD;
    }
    return true;
}

void take_block(struct block *block) {
    now = block;
    fibers = block->fibers;
    warps = block->warps;
}

/* Static variables stand once; of blocks that run at once each has its own values. */
void swap_static_shared(struct block *from, struct block *to) {
    for (const auto &[variable, bytes] : sharing_now->variables) {
        void *at = const_cast<void *>(variable);
        if (from != nullptr) {
            auto &kept = from->static_shared[variable];
            kept.resize(bytes);
            memcpy(kept.data(), at, bytes);
        }
        auto found = to->static_shared.find(variable);
        if (found != to->static_shared.end())
            memcpy(at, found->second.data(), bytes);
        else
            memset(at, 0xff, bytes);
    }
}

void start_block(uint64_t at, size_t shared_bytes) {
    now->index = {(unsigned)(at % gridDim.x), (unsigned)(at / gridDim.x % gridDim.y),
                  (unsigned)(at / gridDim.x / gridDim.y)};
    now->alive = threads;
    now->at_barrier = now->at_grid_barrier = now->true_values = 0;
    now->first = now->ready_count = 0;
    now->static_shared.clear();
    if (shared_bytes > 0) memset(now->dynamic_shared, 0xff, shared_bytes);
    for (auto &warp : now->warps) warp = {};
    for (int i = 0; i < threads; i++) {
        unsigned n = (unsigned)i;
        warps[i / WARP].alive |= 1u << i % WARP;
        fibers[i].index = {n % blockDim.x, n / blockDim.x % blockDim.y,
                           n / blockDim.x / blockDim.y};
        fiber_start(&fibers[i]);
        make_ready(i);
    }
}

/* Until none of its threads can go on. */
void run_block() {
    blockIdx = now->index;
    while (now->ready_count > 0 && failure[0] == '\0') {
        current = next_ready();
        threadIdx = fibers[current].index;
        from_home = true;
        go(&home, &fibers[current].context, false, fibers[current].stack, STACK);
    }
    if (now->alive > now->at_grid_barrier && failure[0] == '\0')
        fail("%d of %d threads wait at a barrier or for a warp that the others never meet",
             now->alive, threads);
}

/* All blocks, again and again up to where they wait for each other; in another order each time. */
void run_together(size_t shared_bytes) {
    int alive = together, order[MOST_TOGETHER];
    struct block *last = nullptr;
    for (int i = 0; i < together; i++) {
        take_block(&blocks[i]);
        start_block((uint64_t)i, shared_bytes);
        order[i] = i;
    }
    while (alive > 0 && failure[0] == '\0') {
        for (int i = 0; blasd_shim_seed > 0 && i < together; i++) {
            int other =
                blasd_shim_seed == 1 ? together - 1 - i : (int)(draw() % (uint64_t)together);
            std::swap(order[i], order[other]);
        }
        for (int i = 0; i < together && failure[0] == '\0'; i++) {
            take_block(&blocks[order[i]]);
            if (now->alive == 0) continue;
            if (last != now) swap_static_shared(last, now);
            last = now;
            run_block();
        }
        alive = 0;
        for (int i = 0; i < together; i++) alive += blocks[i].alive > 0;
        if (alive > 0 && alive < together)
            fail("%d of %d blocks wait for the others, which have ended", alive, together);
        for (int i = 0; i < together; i++) {
            take_block(&blocks[i]);
            now->at_grid_barrier = 0;
            for (int t = 0; t < threads; t++)
                if (fibers[t].state == AT_GRID_BARRIER) make_ready(t);
        }
    }
    take_block(blocks);
}

/* As CUDA has it: 48 KiB in all, or as much dynamic memory as the kernel was allowed. */
void shared_fits() {
    size_t all = sharing_now->static_bytes + dynamic_now;
    if (all > blasd_shim_shared_most)
        fail("%zu bytes of shared memory are more than there are", all);
    if (all > SHARED_UNASKED && dynamic_now > allowed_now)
        fail("%zu bytes of static and %zu of dynamic shared memory are more than 48 KiB, and the "
             "kernel was allowed %zu",
             sharing_now->static_bytes, dynamic_now, allowed_now);
}

bool fits(dim3 grid, dim3 block, size_t shared_bytes) {
    if (grid.x < 1 || grid.y < 1 || grid.z < 1 || grid.x > 0x7fffffffu || grid.y > 65535 ||
        grid.z > 65535)
        fail("no grid may be %u x %u x %u", grid.x, grid.y, grid.z);
    if (block.x < 1 || block.y < 1 || block.z < 1 || block.x > 1024 || block.y > 1024 ||
        block.z > 64 || block.x * block.y * block.z > MOST_THREADS)
        fail("no block may be %u x %u x %u", block.x, block.y, block.z);
    dynamic_now = shared_bytes;
    shared_fits();
    return failure[0] == '\0';
}

} // namespace

bool blasd_shim_allow_shared(const void *kernel, size_t bytes) {
    struct sharing &sharing = kernels[kernel];
    if (sharing.static_bytes + bytes > blasd_shim_shared_most) return false;
    sharing.allowed = bytes;
    return true;
}

size_t blasd_shim_allowed(const void *kernel) {
    return kernels[kernel].allowed;
}

void blasd_shim_forget_allowed(void) {
    for (auto &entry : kernels) entry.second.allowed = 0;
}

void blasd_shim_static_shared(const void *variable, size_t bytes) {
    if (!sharing_now->variables.emplace(variable, bytes).second) return;
    sharing_now->static_bytes += bytes;
    shared_fits();
}

void *blasd_shim_dynamic_shared(void) {
    return now->dynamic_shared;
}

int blasd_shim_lane(void) {
    return current % WARP;
}

void blasd_shim_barrier(bool value, int *count) {
    if (value) now->true_values++;
    now->at_barrier++;
    fibers[current].state = AT_BARRIER;
    barrier_check();
    leave(false);
    if (count != nullptr) *count = now->counted;
}

void blasd_shim_grid_barrier(void) {
    if (together == 0) fail("blocks that were not launched together cannot wait for each other");
    now->at_grid_barrier++;
    fibers[current].state = AT_GRID_BARRIER;
    leave(false);
}

uint64_t blasd_shim_meet(enum blasd_shim_meeting what, unsigned mask, uint64_t value, int source) {
    struct fiber *me = &fibers[current];
    me->state = AT_MEETING;
    me->what = what;
    me->mask = mask;
    me->value = value;
    me->source = source;
    if ((mask >> current % WARP & 1) == 0) fail("a lane calls a warp function without itself");
    warps[current / WARP].waiting |= 1u << current % WARP;
    meeting_check(current / WARP, mask);
    leave(false);
    return me->result;
}

namespace {

/* Of its exact size, so that a sanitizer sees what lies behind it. */
unsigned char *take_shared(size_t bytes) {
    unsigned char *shared = (unsigned char *)aligned_alloc(16, (bytes + 15) / 16 * 16 + 16);
    if (shared == nullptr) fail("no memory for shared memory");
#ifdef SHIM_ASAN
    if (shared != nullptr) __asan_poison_memory_region(shared + (bytes + 7) / 8 * 8, 8);
#endif
    return shared;
}
void drop_shared(unsigned char *shared, size_t bytes) {
#ifdef SHIM_ASAN
    if (shared != nullptr) __asan_unpoison_memory_region(shared + (bytes + 7) / 8 * 8, 8);
#else
    (void)bytes;
#endif
    free(shared);
}

void run_grid(size_t shared_bytes) {
    uint64_t all = (uint64_t)gridDim.x * gridDim.y * gridDim.z;
    int at_once = together > 0 ? together : 1;
    for (int i = 0; i < at_once && failure[0] == '\0'; i++) {
        take_block(&blocks[i]);
        now->dynamic_shared = take_shared(shared_bytes);
        (void)have_stacks(threads);
    }
    take_block(blocks);
    if (together > 0 && failure[0] == '\0') run_together(shared_bytes);
    /* blocks too come in an order that must not matter */
    uint64_t flip = blasd_shim_seed > 1 ? draw() % all : 0;
    for (uint64_t i = 0; together == 0 && i < all && failure[0] == '\0'; i++) {
        start_block(blasd_shim_seed == 1 ? all - 1 - i : (i + flip) % all, shared_bytes);
        run_block();
    }
    for (int i = 0; i < at_once; i++) {
        drop_shared(blocks[i].dynamic_shared, shared_bytes);
        blocks[i].dynamic_shared = nullptr;
    }
    take_block(blocks);
}

} // namespace

bool blasd_shim_run(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, size_t allowed,
                    bool launched_together, const std::function<void()> &run, char *why,
                    size_t size) {
    uint64_t all = (uint64_t)grid.x * grid.y * grid.z;
    failure[0] = '\0';
    blasd_shim_launches++;
    sharing_now = &kernels[kernel];
    allowed_now = allowed;
    gridDim = grid;
    blockDim = block;
    threads = (int)(block.x * block.y * block.z);
    if (threads > sharing_now->threads) sharing_now->threads = threads;
    if (shared_bytes > sharing_now->most) sharing_now->most = shared_bytes;
    random_state = blasd_shim_seed;
    body = &run;
    together = launched_together ? (int)all : 0;
    if (launched_together && all > MOST_TOGETHER && !blasd_shim_checks_alone)
        fail("%llu blocks are more than run at once", (unsigned long long)all);
    if (fits(grid, block, shared_bytes) && !blasd_shim_checks_alone) run_grid(shared_bytes);
    body = nullptr;
    together = 0;
    snprintf(why, size, "%s", failure);
    return failure[0] == '\0';
}

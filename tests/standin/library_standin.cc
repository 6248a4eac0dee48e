/* The stand-in for the CUDA runtime, for tests on machines without a GPU: memory, streams, events.
 *
 * Nothing that is put on a stream happens before the host waits for something. Then streams go on
 * one operation at a time, in an order drawn from a seed that only events constrain: an upload
 * whose event nobody waits for comes too late under some seed. Device memory cannot be touched
 * outside of these operations: host code that tries ends with SIGSEGV, as it should.
 *
 * Host memory is pinned, or a copy is refused (CUDA would make it wait). Memory that is registered
 * must be mapped, whole pages, as it is said to be, and not be registered already; what is
 * unregistered must still be what it was, with no copy under way: else the device breaks.
 * Read next: library_lapack.cc. */
#include "tests/standin/library_standin.h"

/* before the device language, whose words they use for others */
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <new>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "kernels/cuda/gpu.h"
#include "kernels/cuda/library_parts.h"
#include "tests/standin/standin_stream.h"

extern "C" {
#include "base/clock.h"
#include "kernels/cuda/cuda_status.h"
}

static size_t shared_of(int major, int minor) {
    bool much = major == 8 && (minor == 0 || minor == 7);
    return (size_t)(major == 9 || major == 10 ? 227 : much ? 163 : 99) << 10;
}

static struct blasd_standin at_first() {
    struct blasd_standin standin = {};
    const char *setting = getenv("BLASD_STANDIN_SEED");
    standin.seed = setting != nullptr ? strtoull(setting, nullptr, 10) : 1;
    standin.memory_bytes = (uint64_t)1 << 30;
    setting = getenv("BLASD_STANDIN_CARDS"); /* how many */
    standin.device_count = setting != nullptr ? atoi(setting) : 1;
    standin.driver_version = 13000;
    standin.emulates = true;
    standin.least = 80;
    standin.major = 9;
    /* for tests of whole processes: a card "7.5", or what counting the cards ends with */
    setting = getenv("BLASD_STANDIN_CARD");
    if (setting != nullptr) sscanf(setting, "%d.%d", &standin.major, &standin.minor);
    blasd_shim_shared_most = shared_of(standin.major, standin.minor);
    setting = getenv("BLASD_STANDIN_REGISTERS"); /* "no", "writable": what may be registered */
    standin.registers = setting == nullptr || strcmp(setting, "no") != 0;
    standin.registers_read_only = setting == nullptr;
    standin.register_most = UINT64_MAX;
    setting = getenv("BLASD_STANDIN_DRIVER");
    if (setting != nullptr)
        sscanf(setting, "%d %d", &standin.driver_status, &standin.driver_version);
    return standin;
}

struct blasd_standin blasd_standin = at_first();

struct blasd_gpu {
    int ordinal;
};

struct blasd_gpu_event {
    long recorded, passed; /* how often it was put on a stream, and how often come to pass */
    int64_t at_ns;
};

namespace {

struct operation {
    enum { RUN, RECORD, AFTER } kind;
    std::function<void()> run;
    struct blasd_gpu_event *event;
    long number; /* of the event's recording */
};

struct block {
    char *memory;
    size_t bytes;
    bool registered = false, read_only = false;
    unsigned long inode = 0;                                /* of registered memory */
    std::shared_ptr<std::atomic<long>> under_way = nullptr; /* copies; of host memory */
};

std::vector<struct block> device_memory, host_memory;
std::mutex host_lock; /* of the latter: threads may register */
std::vector<struct blasd_gpu_stream *> streams;
char broken_why[200];
uint64_t random_state;

uint64_t draw() {
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u) + blasd_standin.seed;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void break_device(const char *why) {
    if (blasd_standin.broken) return;
    blasd_standin.broken = true;
    snprintf(broken_why, sizeof broken_why, "%s", why);
}

bool within(const std::vector<struct block> &list, const void *from, size_t bytes) {
    for (const auto &block : list)
        if ((const char *)from >= block.memory &&
            (const char *)from + bytes <= block.memory + block.bytes)
            return true;
    return false;
}

void allow(int protection) {
    for (const auto &block : device_memory) mprotect(block.memory, block.bytes, protection);
}

} // namespace

struct blasd_gpu_stream {
    std::deque<struct operation> queue;
};

namespace {

bool can_go_on(const struct blasd_gpu_stream *stream) {
    const struct operation *head;
    if (stream->queue.empty()) return false;
    head = &stream->queue.front();
    return head->kind != operation::AFTER || head->event->passed >= head->number;
}

/* One operation of some stream; false where there is none. */
bool step() {
    size_t count = streams.size(), first;
    static size_t turn;
    if (count == 0) return false;
    first = blasd_standin.seed == 0 ? turn++ : (size_t)draw();
    for (size_t i = 0; i < count; i++) {
        struct blasd_gpu_stream *stream = streams[(first + i) % count];
        struct operation next;
        if (!can_go_on(stream)) continue;
        next = std::move(stream->queue.front());
        stream->queue.pop_front();
        if (next.kind == operation::RUN && !blasd_standin.broken) next.run();
        if (next.kind == operation::RECORD) {
            next.event->passed = next.number;
            next.event->at_ns = blasd_clock_ns();
        }
        return true;
    }
    return false;
}

template <class Until> void go_on(Until until) {
    if (until()) return;
    allow(PROT_READ | PROT_WRITE);
    while (!until())
        if (!step()) break;
    allow(PROT_NONE);
}

void go_on_to_the_end() {
    go_on([] {
        for (const auto *stream : streams)
            if (!stream->queue.empty()) return false;
        return true;
    });
}

} // namespace

int blasd_standin_fault(struct blasd_err *err) {
    blasd_standin.calls++;
    if (blasd_standin.fail_at > 0 && --blasd_standin.fail_at == 0) {
        if (blasd_standin.fail_code != BLASD_E_device_error)
            return blasd_fail(err, blasd_standin.fail_code, "", "a fault that a test asked for");
        break_device("a fault that a test asked for");
    }
    if (blasd_standin.broken) return blasd_fail(err, BLASD_E_device_error, "", "%s", broken_why);
    return 0;
}

#define FAULT()                                                                                    \
    if (int fault_ = blasd_standin_fault(err); fault_ != 0) return fault_

void blasd_standin_put(struct blasd_gpu_stream *stream, std::function<void()> run) {
    stream->queue.push_back({operation::RUN, std::move(run), nullptr, 0});
}

/* An allocation, of which a test may have said that there is no memory for it. */
static int memory_fault(struct blasd_err *err) {
    bool none = blasd_standin.no_memory_at < 0;
    if (blasd_standin.no_memory_at > 0 && --blasd_standin.no_memory_at == 0) {
        none = true;
        blasd_standin.no_memory_at = blasd_standin.no_memory_after ? -1 : 0;
    }
    if (!none) return 0;
    return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory, as a test asked for");
}

void blasd_standin_card(int major, int minor) {
    blasd_standin.major = major;
    blasd_standin.minor = minor;
    blasd_shim_shared_most = shared_of(major, minor);
}

void blasd_standin_repair(void) {
    blasd_standin.broken = false;
    blasd_standin.fail_at = blasd_standin.no_memory_at = 0;
    blasd_shim_forget_allowed();
}

int blasd_shim_launch(const void *kernel, dim3 grid, dim3 block, size_t shared_bytes, bool together,
                      struct blasd_gpu_stream *stream, std::function<void()> run,
                      struct blasd_err *err) {
    size_t allowed = blasd_shim_allowed(kernel); /* now: later launches may ask for less */
    char why[200];
    if (stream == nullptr) {
        if (blasd_shim_run(kernel, grid, block, shared_bytes, allowed, together, run, why,
                           sizeof why))
            return 0;
        return blasd_fail(err, BLASD_E_device_error, "", "%s", why);
    }
    FAULT();
    blasd_standin.launches++;
    blasd_standin_put(stream, [=] {
        char text[200];
        if (!blasd_shim_run(kernel, grid, block, shared_bytes, allowed, together, run, text,
                            sizeof text))
            break_device(text);
    });
    return 0;
}

/* As NVIDIA's driver, which else gives CUDA's error 304. */
static bool names_a_thread() {
    char path[64];
    int fd;
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)gettid());
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return false;
    close(fd);
    return true;
}

void blasd_gpu_driver(struct blasd_gpu_driver *ret) {
    *ret = {};
    ret->status = blasd_standin.driver_status;
    if (ret->status == 0 && !names_a_thread()) ret->status = 304;
    snprintf(ret->says, sizeof ret->says, "as a test asked for");
    ret->version = blasd_standin.driver_version;
    ret->runtime = 13000;
    ret->count = ret->status == 0 ? blasd_standin.device_count : 0;
    ret->least = blasd_standin.least;
}

int blasd_gpu_peek(int ordinal, struct blasd_gpu_facts *ret, struct blasd_err *) {
    *ret = {};
    snprintf(ret->name, sizeof ret->name, "stand-in for a GPU (%d)", ordinal);
    snprintf(ret->bus_id, sizeof ret->bus_id, "none");
    ret->units = 1;
    ret->major = blasd_standin.major;
    ret->minor = blasd_standin.minor;
    ret->shared_bytes = blasd_shim_shared_most;
    ret->registers_read_only = blasd_standin.registers_read_only;
    return 0;
}

int blasd_gpu_open(int ordinal, struct blasd_gpu **ret, struct blasd_err *err) {
    const char *slow = getenv("BLASD_STANDIN_OPEN_MS"); /* for tests of whole processes */
    FAULT();
    if (slow != nullptr) usleep((useconds_t)atoi(slow) * 1000);
    if (blasd_standin.open_status != 0) {
        struct blasd_gpu_driver driver;
        blasd_gpu_driver(&driver);
        return blasd_cuda_refuse(&driver, blasd_standin.open_status, driver.says, err);
    }
    *ret = new (std::nothrow) blasd_gpu{ordinal};
    if (*ret == nullptr) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    return 0;
}

void blasd_gpu_close(struct blasd_gpu *gpu) {
    delete gpu;
}

int blasd_gpu_facts(struct blasd_gpu *gpu, struct blasd_gpu_facts *ret, struct blasd_err *err) {
    FAULT();
    (void)blasd_gpu_peek(gpu->ordinal, ret, err);
    ret->memory_bytes = blasd_standin.memory_bytes;
    ret->memory_free_bytes = blasd_standin.memory_bytes - blasd_standin.device_bytes;
    return 0;
}

/* Allocations lie side by side, as a driver's may, so that a copy which takes two for one is seen:
 * in a region of addresses that begins anew when nothing is held. */
static void *map_pages(size_t pages) {
    static const size_t room = (size_t)1 << 36;
    static const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    static char *const region = (char *)mmap(nullptr, room, PROT_NONE, flags, -1, 0);
    static size_t used;
    if (device_memory.empty()) used = 0;
    if (region == MAP_FAILED || used + pages > room)
        return mmap(nullptr, pages, PROT_NONE, flags, -1, 0);
    used += pages;
    return mmap(region + used - pages, pages, PROT_NONE, flags | MAP_FIXED, -1, 0);
}

int blasd_gpu_device_alloc(struct blasd_gpu *, size_t bytes, void **ret, struct blasd_err *err) {
    size_t pages = (bytes + 4095) / 4096 * 4096;
    void *memory;
    FAULT();
    if (int code = memory_fault(err); code != 0) return code;
    if (blasd_standin.device_bytes + pages > blasd_standin.memory_bytes)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the device is out of memory");
    memory = map_pages(pages);
    if (memory == MAP_FAILED)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "the machine is out of memory");
    device_memory.push_back({(char *)memory, pages});
    blasd_standin.device_bytes += pages;
    blasd_standin.device_blocks++;
    blasd_standin.device_allocs++;
    *ret = memory;
    return 0;
}

void blasd_gpu_device_free(struct blasd_gpu *, void *memory) {
    go_on_to_the_end();
    for (size_t i = 0; i < device_memory.size(); i++) {
        if (device_memory[i].memory != memory) continue;
        /* nobody else's pages come there */
        mmap(memory, device_memory[i].bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        blasd_standin.device_bytes -= device_memory[i].bytes;
        blasd_standin.device_blocks--;
        device_memory.erase(device_memory.begin() + (long)i);
        return;
    }
    break_device("memory was freed that had not been allocated");
}

int blasd_gpu_host_alloc(struct blasd_gpu *, size_t bytes, void **ret, struct blasd_err *err) {
    size_t pages = (bytes + 4095) / 4096 * 4096;
    FAULT();
    if (int code = memory_fault(err); code != 0) return code;
    *ret = aligned_alloc(4096, pages);
    if (*ret == nullptr) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    std::lock_guard<std::mutex> guard(host_lock);
    host_memory.push_back({.memory = (char *)*ret,
                           .bytes = pages,
                           .under_way = std::make_shared<std::atomic<long>>(0)});
    blasd_standin.host_blocks++;
    return 0;
}

void blasd_gpu_host_free(struct blasd_gpu *, void *memory) {
    go_on_to_the_end();
    std::lock_guard<std::mutex> guard(host_lock);
    for (size_t i = 0; i < host_memory.size(); i++) {
        if (host_memory[i].memory != memory) continue;
        host_memory.erase(host_memory.begin() + (long)i);
        blasd_standin.host_blocks--;
        free(memory);
        return;
    }
    break_device("host memory was freed that had not been allocated");
}

/* How all of this is mapped: 0 not at all, 1 to be read, 2 to be written; and the file's inode. */
static int mapped(const char *memory, size_t bytes, unsigned long *inode) {
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long at = (unsigned long)memory, end = at + bytes, from, to;
    char line[4400], how[8];
    int found = 2;
    while (maps != nullptr && at < end && fgets(line, sizeof line, maps) != nullptr) {
        unsigned long own = 0;
        if (sscanf(line, "%lx-%lx %7s %*x %*s %lu", &from, &to, how, &own) < 3 || to <= at)
            continue;
        if (from > at || how[0] != 'r') break;
        if (how[1] != 'w') found = 1;
        if (at == (unsigned long)memory) *inode = own;
        at = to;
    }
    if (maps != nullptr) fclose(maps);
    return at < end ? 0 : found;
}

static int refuse_to_register(const char *why, struct blasd_err *err) {
    return blasd_fail(err, BLASD_E_internal_error, "", "registering memory: %s", why);
}

int blasd_gpu_host_register(struct blasd_gpu *, void *memory, size_t bytes, bool read_only,
                            struct blasd_err *err) {
    char *from = (char *)memory;
    unsigned long inode = 0;
    int how = mapped(from, bytes, &inode);
    std::lock_guard<std::mutex> guard(host_lock);
    FAULT();
    if (!blasd_standin.registers || (read_only && !blasd_standin.registers_read_only))
        return refuse_to_register("operation not supported", err);
    if (bytes == 0 || (uintptr_t)memory % 4096 != 0 || bytes % 4096 != 0)
        return refuse_to_register("it is not whole pages", err);
    if (how == 0 || (how == 1 && !read_only)) return refuse_to_register("invalid argument", err);
    for (const auto &block : host_memory)
        if (from < block.memory + block.bytes && block.memory < from + bytes)
            return refuse_to_register("part or all of it is registered already", err);
    if (blasd_standin.registered_bytes + bytes > blasd_standin.register_most)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no more memory can be locked");
    host_memory.push_back({.memory = from,
                           .bytes = bytes,
                           .registered = true,
                           .read_only = read_only,
                           .inode = inode,
                           .under_way = std::make_shared<std::atomic<long>>(0)});
    blasd_standin.registered++;
    blasd_standin.registrations++;
    blasd_standin.registered_bytes += bytes;
    return 0;
}

void blasd_gpu_host_unregister(struct blasd_gpu *, void *memory) {
    std::lock_guard<std::mutex> guard(host_lock);
    for (size_t i = 0; i < host_memory.size(); i++) {
        const struct block block = host_memory[i];
        unsigned long inode = 0;
        if (block.memory != memory || !block.registered) continue;
        if (*block.under_way != 0)
            break_device("host memory was unregistered with a copy under way");
        if (mapped(block.memory, block.bytes, &inode) == 0 || inode != block.inode)
            break_device("host memory was unmapped before it was unregistered");
        host_memory.erase(host_memory.begin() + (long)i);
        blasd_standin.registered--;
        blasd_standin.registered_bytes -= block.bytes;
        return;
    }
    break_device("host memory was unregistered that had not been registered");
}

int blasd_gpu_stream_open(struct blasd_gpu *, struct blasd_gpu_stream **ret,
                          struct blasd_err *err) {
    FAULT();
    *ret = new (std::nothrow) blasd_gpu_stream{};
    if (*ret == nullptr) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    streams.push_back(*ret);
    blasd_standin.streams++;
    return 0;
}

void blasd_gpu_stream_close(struct blasd_gpu_stream *stream) {
    if (stream == nullptr) return;
    go_on([=] { return stream->queue.empty(); });
    for (size_t i = 0; i < streams.size(); i++) {
        if (streams[i] != stream) continue;
        streams.erase(streams.begin() + (long)i);
        blasd_standin.streams--;
        break;
    }
    delete stream;
}

int blasd_gpu_stream_wait(struct blasd_gpu_stream *stream, struct blasd_err *err) {
    blasd_standin.waits++;
    go_on([=] { return stream->queue.empty(); });
    FAULT();
    return 0;
}

int blasd_gpu_event_open(struct blasd_gpu *, struct blasd_gpu_event **ret, struct blasd_err *err) {
    FAULT();
    *ret = new (std::nothrow) blasd_gpu_event{};
    if (*ret == nullptr) return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory");
    blasd_standin.events++;
    return 0;
}

void blasd_gpu_event_close(struct blasd_gpu_event *event) {
    if (event == nullptr) return;
    go_on_to_the_end(); /* operations may still name it */
    blasd_standin.events--;
    delete event;
}

int blasd_gpu_event_record(struct blasd_gpu_event *event, struct blasd_gpu_stream *stream,
                           struct blasd_err *err) {
    FAULT();
    stream->queue.push_back({operation::RECORD, nullptr, event, ++event->recorded});
    return 0;
}

int blasd_gpu_stream_after(struct blasd_gpu_stream *stream, struct blasd_gpu_event *event,
                           struct blasd_err *err) {
    FAULT();
    stream->queue.push_back({operation::AFTER, nullptr, event, event->recorded});
    return 0;
}

int blasd_gpu_event_wait(struct blasd_gpu_event *event, struct blasd_err *err) {
    blasd_standin.waits++;
    go_on([=] { return event->passed >= event->recorded; });
    FAULT();
    return 0;
}

int blasd_gpu_event_us(struct blasd_gpu_event *from, struct blasd_gpu_event *to, double *ret,
                       struct blasd_err *err) {
    FAULT();
    if (from->passed < from->recorded || to->passed < to->recorded || to->recorded == 0)
        return blasd_fail(err, BLASD_E_internal_error, "", "an event has not come to pass");
    *ret = (double)(to->at_ns - from->at_ns) / 1e3;
    return 0;
}

static int copy(struct blasd_gpu_stream *stream, void *to, const void *from, size_t bytes,
                bool bounds, struct blasd_err *err) {
    FAULT();
    if (bytes == 0) return 0;
    if (!bounds)
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "a copy leaves its memory, or the host's side is not pinned");
    blasd_standin_put(stream, [=] { memmove(to, from, bytes); });
    return 0;
}

/* The same with the host's memory, which must be pinned, and not be unpinned before. */
static int copy_host(struct blasd_gpu_stream *stream, void *to, const void *from, bool up,
                     size_t bytes, struct blasd_err *err) {
    const char *host = (const char *)(up ? from : to);
    std::shared_ptr<std::atomic<long>> under_way;
    FAULT();
    if (bytes == 0) return 0;
    {
        std::lock_guard<std::mutex> guard(host_lock);
        for (const auto &block : host_memory) {
            if (host < block.memory || host + bytes > block.memory + block.bytes) continue;
            if (block.read_only && !up) break;
            under_way = block.under_way;
            if (!block.registered) blasd_standin.bytes_staged += bytes;
            break;
        }
    }
    if (under_way == nullptr || !within(device_memory, up ? to : from, bytes))
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "a copy leaves its memory, or the host's side is not pinned");
    (*under_way)++;
    blasd_standin_put(stream, [=] {
        memmove(to, from, bytes);
        (*under_way)--;
    });
    return 0;
}

int blasd_gpu_copy_up(struct blasd_gpu_stream *stream, void *device, const void *host, size_t bytes,
                      struct blasd_err *err) {
    blasd_standin.copies_up++;
    blasd_standin.bytes_up += bytes;
    return copy_host(stream, device, host, true, bytes, err);
}
int blasd_gpu_copy_down(struct blasd_gpu_stream *stream, void *host, const void *device,
                        size_t bytes, struct blasd_err *err) {
    blasd_standin.copies_down++;
    blasd_standin.bytes_down += bytes;
    return copy_host(stream, host, device, false, bytes, err);
}
int blasd_gpu_copy_within(struct blasd_gpu_stream *stream, void *to, const void *from, size_t bytes,
                          struct blasd_err *err) {
    blasd_standin.copies_within++;
    return copy(stream, to, from, bytes,
                within(device_memory, to, bytes) && within(device_memory, from, bytes), err);
}

int blasd_gpu_fill(struct blasd_gpu_stream *stream, void *device, int byte, size_t bytes,
                   struct blasd_err *err) {
    FAULT();
    if (bytes == 0) return 0;
    if (!within(device_memory, device, bytes))
        return blasd_fail(err, BLASD_E_internal_error, "", "a fill leaves its memory");
    blasd_standin_put(stream, [=] { memset(device, byte, bytes); });
    return 0;
}

extern "C" const struct blasd_gpu_library blasd_gpu_calls = BLASD_GPU_TABLE("stand-in");

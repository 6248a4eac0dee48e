/* What a batch draws: the card's mean power while it was open, by the card's own energy counter,
 * times its share of the time. Batches that overlap share nothing twice: a batch has the time from
 * the end of the one before it, or from its own begin, to its end. The counter is read now and
 * then, not for each of a thousand small batches a second: one that falls between two readings has
 * the power of the span before. Read next: nvml.c. */
#include "kernels/cuda/device.h"

#include "base/clock.h"

#define OLD_NS INT64_C(1000000000) /* a span that began longer ago says nothing about now */

static bool read_counter(struct blasd_device *device, int64_t now) {
    struct blasd_cuda_energy *energy = &device->energy;
    double joules;
    if (device->nvml == NULL) return false;
    if (energy->last.at_ns != 0 && now - energy->last.at_ns < blasd_cuda_tuning.energy_ns)
        return true;
    if (!blasd_nvml_energy(device->nvml, &joules)) return false;
    energy->before = energy->last;
    energy->last = (struct blasd_cuda_reading){joules, now};
    return true;
}

void blasd_cuda_energy_begin(struct blasd_async_batch *batch) {
    batch->begun_ns = blasd_clock_ns();
    if (read_counter(batch->device, batch->begun_ns)) batch->reading = batch->device->energy.last;
}

void blasd_cuda_energy_end(struct blasd_async_batch *batch) {
    struct blasd_cuda_energy *energy = &batch->device->energy;
    struct blasd_cuda_reading from = batch->reading;
    int64_t now = blasd_clock_ns(), start = batch->begun_ns;
    double watts, joules;
    if (start < energy->ended_ns) start = energy->ended_ns;
    energy->ended_ns = now;
    if (from.at_ns == 0 || !read_counter(batch->device, now)) return;
    if (from.at_ns == energy->last.at_ns) {
        from = energy->before;
        if (from.at_ns == 0 || now - from.at_ns > OLD_NS) return;
    }
    if (energy->last.at_ns <= from.at_ns || !(energy->last.joules >= from.joules)) return;
    watts = (energy->last.joules - from.joules) * 1e9 / (double)(energy->last.at_ns - from.at_ns);
    joules = watts * (double)(now - start) / 1e9;
    for (int t = 0; t < batch->count; t++) batch->tasks[t].energy_joules = joules;
}

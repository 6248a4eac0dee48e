/* Requests to PM QoS, /dev/cpu_dma_latency: the greatest wake-up latency that the holder of the
 * descriptor can bear, as a 32-bit number of microseconds. */
#include "base/awake.h"

#include "base/clock.h"
#include "base/container.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IDLE_DRIVER "/sys/devices/system/cpu/cpuidle/current_driver"
#define NO_LATENCY 0
#define ANY_LATENCY 2000000000 /* what the kernel itself begins with: no request */

const char *blasd_awake_device(uint64_t most_cores) {
    char driver[32] = "";
    if ((uint64_t)sysconf(_SC_NPROCESSORS_ONLN) > most_cores) return NULL;
    FILE *file = fopen(IDLE_DRIVER, "re");
    if (file == NULL) return NULL;
    if (fgets(driver, sizeof driver, file) == NULL) driver[0] = '\0';
    fclose(file);
    return strncmp(driver, "haltpoll", 8) == 0 ? "/dev/cpu_dma_latency" : NULL;
}

/* A device that takes no requests is not asked again. */
static bool request(struct blasd_awake *awake, int32_t latency_us) {
    if (write(awake->fd, &latency_us, sizeof latency_us) == (ssize_t)sizeof latency_us) return true;
    close(awake->fd);
    awake->fd = -1;
    return false;
}

static void let_go(struct blasd_awake *awake) {
    if (awake->held) (void)request(awake, ANY_LATENCY);
    awake->held = false;
}

static void on_timer(struct blasd_timer *timer) {
    struct blasd_awake *awake = blasd_container_of(timer, struct blasd_awake, timer);
    int64_t until = awake->touched_ns + awake->linger_ns;
    if (until <= blasd_clock_ns() || blasd_loop_timer_set(awake->loop, timer, until) != 0)
        let_go(awake);
}

bool blasd_awake_open(struct blasd_awake *awake, struct blasd_loop *loop, const char *device,
                      uint64_t linger_ms) {
    *awake = (struct blasd_awake){
        .loop = loop, .timer.fire = on_timer, .linger_ns = (int64_t)linger_ms * 1000000, .fd = -1};
    if (device == NULL || linger_ms == 0) return false;
    awake->fd = open(device, O_WRONLY | O_CLOEXEC);
    return awake->fd >= 0;
}

void blasd_awake_touch(struct blasd_awake *awake) {
    if (awake->fd < 0) return;
    awake->touched_ns = blasd_clock_ns();
    if (awake->held) return;
    awake->held = blasd_loop_timer_set(awake->loop, &awake->timer,
                                       awake->touched_ns + awake->linger_ns) == 0 &&
                  request(awake, NO_LATENCY);
}

void blasd_awake_close(struct blasd_awake *awake) {
    if (awake->loop == NULL) return;
    blasd_loop_timer_clear(awake->loop, &awake->timer);
    if (awake->fd >= 0) close(awake->fd);
    *awake = (struct blasd_awake){.fd = -1};
}

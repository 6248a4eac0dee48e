/* A loop's thread stays on its core while it is busy, goes to the core of who sends to it while no
 * core is idle, and is let go. What the cores do is told by a file here; the sockets and the cores
 * are real. */
#include "http/loop_core.h"

#include "base/clock.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define MS INT64_C(1000000)

struct wire {
    int sender, taker;
};

static void wire_open(struct wire *wire, in_addr_t address) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    socklen_t len = sizeof here;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&here, sizeof here), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&here, &len), 0);
    wire->sender = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(wire->sender, (struct sockaddr *)&here, sizeof here), 0);
    wire->taker = accept(listener, NULL, NULL);
    assert_true(wire->taker >= 0);
    close(listener);
}

static void wire_close(struct wire *wire) {
    close(wire->sender);
    close(wire->taker);
}

static cpu_set_t mine(void) {
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

static void run_on(const cpu_set_t *set) {
    assert_int_equal(sched_setaffinity(0, sizeof *set, set), 0);
}

static cpu_set_t only(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    return set;
}

static bool is_kept(int core) {
    cpu_set_t now = mine(), wanted = only(core);
    return CPU_EQUAL(&now, &wanted);
}

/* Bytes go over the wire from `core`; the thread is where it was afterwards. */
static void send_from(const struct wire *wire, int core) {
    char bytes[1000] = "";
    cpu_set_t before = mine(), there = only(core);
    run_on(&there);
    assert_int_equal(send(wire->sender, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(recv(wire->taker, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    run_on(&before);
}

struct bed {
    char path[32];
    struct http_loop_core core;
    double up_s, idle_s;
    cpu_set_t usual;
    int cores[2]; /* two that this process may use */
};

static void tell(const struct bed *bed) {
    FILE *file = fopen(bed->path, "w");
    assert_non_null(file);
    fprintf(file, "%.2f %.2f\n", bed->up_s, bed->idle_s);
    fclose(file);
}

/* Some time passes, of which each core was idle for that share. */
static void live(struct bed *bed, double idle) {
    bed->up_s += 10;
    bed->idle_s += 10 * bed->core.cores * idle;
    tell(bed);
    bed->core.looked_ns -= 150 * MS;
}

/* False where this machine has one core: then nothing is ever done. */
static bool bed_open(struct bed *bed) {
    int found = 0;
    *bed = (struct bed){.path = "/tmp/blasd-core-XXXXXX", .up_s = 100, .usual = mine()};
    close(mkstemp(bed->path));
    tell(bed);
    http_loop_core_open(&bed->core, bed->path);
    for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET((size_t)i, &bed->usual)) bed->cores[found++] = i;
    return found == 2;
}

static void bed_close(struct bed *bed) {
    cpu_set_t now = mine();
    assert_true(CPU_EQUAL(&now, &bed->usual));
    unlink(bed->path);
}

static void test_follows_the_sender(void **state) {
    struct bed bed;
    struct wire wire;
    (void)state;
    if (!bed_open(&bed)) skip();
    wire_open(&wire, INADDR_LOOPBACK);
    assert_true(http_loop_core_is_local(wire.taker));
    send_from(&wire, bed.cores[0]);
    http_loop_core_moves(&bed.core, wire.taker); /* the first look says nothing yet */
    assert_int_equal(bed.core.why, HTTP_CORE_ANY);
    live(&bed, 0.01);
    http_loop_core_moves(&bed.core, wire.taker);
    assert_true(is_kept(bed.cores[0]));
    send_from(&wire, bed.cores[1]);
    http_loop_core_moves(&bed.core, wire.taker);
    assert_true(is_kept(bed.cores[1]));
    bed.core.moved_ns += 1000 * MS; /* this instant */
    http_loop_core_turn(&bed.core, false);
    assert_true(is_kept(bed.cores[1]));
    bed.core.moved_ns -= 1030 * MS;
    http_loop_core_turn(&bed.core, false);
    assert_int_equal(bed.core.why, HTTP_CORE_ANY);
    wire_close(&wire);
    bed_close(&bed);
}

static void test_not_while_a_core_is_idle(void **state) {
    struct bed bed;
    struct wire wire;
    (void)state;
    if (!bed_open(&bed)) skip();
    wire_open(&wire, INADDR_LOOPBACK);
    send_from(&wire, bed.cores[1]);
    http_loop_core_moves(&bed.core, wire.taker);
    live(&bed, 0.09);
    http_loop_core_moves(&bed.core, wire.taker);
    assert_int_equal(bed.core.why, HTTP_CORE_ANY);
    live(&bed, 0.02);
    http_loop_core_moves(&bed.core, wire.taker);
    assert_true(is_kept(bed.cores[1]));
    live(&bed, 0.09); /* as little as that does not part them again */
    http_loop_core_moves(&bed.core, wire.taker);
    assert_true(is_kept(bed.cores[1]));
    live(&bed, 0.2);
    http_loop_core_moves(&bed.core, wire.taker);
    assert_int_equal(bed.core.why, HTTP_CORE_ANY);
    wire_close(&wire);
    bed_close(&bed);
}

/* What was long ago says nothing of now; nor does a file that is not there. */
static void test_knows_nothing(void **state) {
    struct bed bed;
    struct wire wire;
    (void)state;
    if (!bed_open(&bed)) skip();
    wire_open(&wire, INADDR_LOOPBACK);
    send_from(&wire, bed.cores[1]);
    http_loop_core_moves(&bed.core, wire.taker);
    live(&bed, 0);
    bed.core.looked_ns -= 1000 * MS;
    http_loop_core_moves(&bed.core, wire.taker);
    assert_int_equal(bed.core.why, HTTP_CORE_ANY);
    unlink(bed.path);
    bed.core.looked_ns -= 150 * MS;
    http_loop_core_moves(&bed.core, wire.taker);
    assert_int_equal(bed.core.why, HTTP_CORE_ANY);
    wire_close(&wire);
    bed_close(&bed);
}

/* Who started the thread on some cores only keeps it there. */
static void test_stays_where_it_may_run(void **state) {
    struct bed bed;
    struct wire wire;
    (void)state;
    if (!bed_open(&bed)) skip();
    cpu_set_t first = only(bed.cores[0]), all = bed.usual;
    wire_open(&wire, INADDR_LOOPBACK);
    send_from(&wire, bed.cores[1]);
    run_on(&first);
    bed.usual = first;
    http_loop_core_moves(&bed.core, wire.taker);
    live(&bed, 0);
    http_loop_core_moves(&bed.core, wire.taker);
    assert_int_equal(bed.core.why, HTTP_CORE_ANY);
    wire_close(&wire);
    bed_close(&bed);
    run_on(&all);
}

static enum http_loop_core_why busy_turn(struct bed *bed, int64_t since_ms) {
    bed->core.since_ns = blasd_clock_ns() - since_ms * MS;
    http_loop_core_turn(&bed->core, true);
    return bed->core.why;
}

/* It stays, is let go for a moment, stays anew, and so on. */
static void test_stays_while_busy(void **state) {
    struct bed bed;
    (void)state;
    if (!bed_open(&bed)) skip();
    http_loop_core_turn(&bed.core, false);
    assert_int_equal(bed.core.why, HTTP_CORE_ANY);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(busy_turn(&bed, 1000), HTTP_CORE_STAYS); /* free for long */
        assert_true(is_kept(sched_getcpu()));
        assert_int_equal(busy_turn(&bed, -1000), HTTP_CORE_STAYS); /* not yet for long */
        assert_int_equal(busy_turn(&bed, 1000), HTTP_CORE_ANY);
        assert_int_equal(busy_turn(&bed, -1000), HTTP_CORE_ANY); /* not yet for a moment */
    }
    assert_int_equal(busy_turn(&bed, 1000), HTTP_CORE_STAYS);
    http_loop_core_turn(&bed.core, false);
    bed_close(&bed);
}

/* Who sends much to a busy loop draws it to its core all the same; a core with time to spare leaves
 * it where it stays. */
static void test_bytes_move_a_busy_one(void **state) {
    struct bed bed;
    struct wire wire;
    (void)state;
    if (!bed_open(&bed)) skip();
    wire_open(&wire, INADDR_LOOPBACK);
    http_loop_core_moves(&bed.core, wire.taker);
    assert_int_equal(busy_turn(&bed, 1000), HTTP_CORE_STAYS);
    int stays = bed.core.seat.core;
    int other = stays == bed.cores[0] ? bed.cores[1] : bed.cores[0];
    send_from(&wire, other);
    live(&bed, 0.5);
    http_loop_core_moves(&bed.core, wire.taker);
    assert_int_equal(bed.core.why, HTTP_CORE_STAYS);
    assert_true(is_kept(stays));
    live(&bed, 0.01);
    http_loop_core_moves(&bed.core, wire.taker);
    assert_int_equal(bed.core.why, HTTP_CORE_NEAR);
    assert_true(is_kept(other));
    http_loop_core_leave(&bed.core);
    wire_close(&wire);
    bed_close(&bed);
}

static void test_peers(void **state) {
    struct wire wire;
    int pair[2];
    (void)state;
    wire_open(&wire, INADDR_LOOPBACK + 5); /* 127.0.0.6 */
    assert_true(http_loop_core_is_local(wire.taker) && http_loop_core_is_local(wire.sender));
    wire_close(&wire);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_false(http_loop_core_is_local(pair[0]));
    close(pair[0]);
    close(pair[1]);
    assert_false(http_loop_core_is_local(-1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_sender),
        cmocka_unit_test(test_not_while_a_core_is_idle),
        cmocka_unit_test(test_knows_nothing),
        cmocka_unit_test(test_stays_where_it_may_run),
        cmocka_unit_test(test_stays_while_busy),
        cmocka_unit_test(test_bytes_move_a_busy_one),
        cmocka_unit_test(test_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

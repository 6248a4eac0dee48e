/* A thread goes to the core of who sends to it while no core is idle, and back. What the cores do
 * is told by a file here; the sockets and the cores are real. */
#include "base/near.h"

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
    struct blasd_near near;
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
    bed->idle_s += 10 * bed->near.cores * idle;
    tell(bed);
    bed->near.looked_ns -= 150 * MS;
}

/* False where this machine has one core: then nothing is ever done. */
static bool bed_open(struct bed *bed) {
    int found = 0;
    *bed = (struct bed){.path = "/tmp/blasd-near-XXXXXX", .up_s = 100, .usual = mine()};
    close(mkstemp(bed->path));
    tell(bed);
    blasd_near_open(&bed->near, bed->path);
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
    assert_true(blasd_near_peer(wire.taker));
    send_from(&wire, bed.cores[0]);
    blasd_near_moves(&bed.near, wire.taker); /* the first look says nothing yet */
    assert_int_equal(bed.near.core, -1);
    live(&bed, 0.01);
    blasd_near_moves(&bed.near, wire.taker);
    assert_true(is_kept(bed.cores[0]));
    send_from(&wire, bed.cores[1]);
    blasd_near_moves(&bed.near, wire.taker);
    assert_true(is_kept(bed.cores[1]));
    bed.near.moved_ns += 1000 * MS; /* this instant */
    blasd_near_turn(&bed.near);
    assert_true(is_kept(bed.cores[1]));
    bed.near.moved_ns -= 1030 * MS;
    blasd_near_turn(&bed.near);
    assert_int_equal(bed.near.core, -1);
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
    blasd_near_moves(&bed.near, wire.taker);
    live(&bed, 0.09);
    blasd_near_moves(&bed.near, wire.taker);
    assert_int_equal(bed.near.core, -1);
    live(&bed, 0.02);
    blasd_near_moves(&bed.near, wire.taker);
    assert_true(is_kept(bed.cores[1]));
    live(&bed, 0.09); /* as little as that does not part them again */
    blasd_near_moves(&bed.near, wire.taker);
    assert_true(is_kept(bed.cores[1]));
    live(&bed, 0.2);
    blasd_near_moves(&bed.near, wire.taker);
    assert_int_equal(bed.near.core, -1);
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
    blasd_near_moves(&bed.near, wire.taker);
    live(&bed, 0);
    bed.near.looked_ns -= 1000 * MS;
    blasd_near_moves(&bed.near, wire.taker);
    assert_int_equal(bed.near.core, -1);
    unlink(bed.path);
    bed.near.looked_ns -= 150 * MS;
    blasd_near_moves(&bed.near, wire.taker);
    assert_int_equal(bed.near.core, -1);
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
    blasd_near_moves(&bed.near, wire.taker);
    live(&bed, 0);
    blasd_near_moves(&bed.near, wire.taker);
    assert_int_equal(bed.near.core, -1);
    wire_close(&wire);
    bed_close(&bed);
    run_on(&all);
}

static void test_peers(void **state) {
    struct wire wire;
    int pair[2];
    (void)state;
    wire_open(&wire, INADDR_LOOPBACK + 5); /* 127.0.0.6 */
    assert_true(blasd_near_peer(wire.taker) && blasd_near_peer(wire.sender));
    wire_close(&wire);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_false(blasd_near_peer(pair[0]));
    close(pair[0]);
    close(pair[1]);
    assert_false(blasd_near_peer(-1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_the_sender),
        cmocka_unit_test(test_not_while_a_core_is_idle),
        cmocka_unit_test(test_knows_nothing),
        cmocka_unit_test(test_stays_where_it_may_run),
        cmocka_unit_test(test_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

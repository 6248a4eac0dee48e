/* Loops shared among threads: every piece once, helpers that stay and end with their thread, their
 * weight, stops, loops within loops, forks, and threads that cannot be had. */
#include "../child_fork.h"
#include "kernel_support.h"

#include "core/parallel.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECES 1000
#define WAIT_MS 120000 /* for a thread that must come: far more than it takes */

static void pause_briefly(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int threads_of_process(void) {
    DIR *dir = opendir("/proc/self/task");
    int count = -2; /* . and .. */
    assert_non_null(dir);
    while (readdir(dir) != NULL) count++;
    closedir(dir);
    return count;
}

static int at_start;

/* A thread that was joined may still be listed for a moment. */
static void expect_threads(int count) {
    for (int i = 0; i < WAIT_MS && threads_of_process() != count; i++) pause_briefly();
    assert_int_equal(threads_of_process(), count);
}

/* How many there are besides helpers, which have been dismissed: as many as at the start. */
static int threads_alone(void) {
    expect_threads(at_start);
    return at_start;
}

struct tally {
    atomic_int done[PIECES];
    atomic_int inside[BLASD_PARALLEL_MAX]; /* threads that hold this slot now */
    atomic_bool shared_slot;
    int64_t stop_at; /* -1: nowhere */
};

static bool count_piece(void *arg, int64_t i, int slot) {
    struct tally *tally = arg;
    if (atomic_fetch_add(&tally->inside[slot], 1) != 0) tally->shared_slot = true;
    atomic_fetch_add(&tally->done[i], 1);
    atomic_fetch_sub(&tally->inside[slot], 1);
    return i != tally->stop_at;
}

static struct blasd_parallel loop_of(struct tally *tally, int64_t count, int threads) {
    memset(tally, 0, sizeof *tally);
    tally->stop_at = -1;
    return (struct blasd_parallel){
        .piece = count_piece, .arg = tally, .count = count, .threads = threads, .to = 1};
}

static bool each_once(struct tally *tally, int64_t count) {
    for (int64_t i = 0; i < PIECES; i++)
        if (tally->done[i] != (i < count)) return false;
    return !tally->shared_slot;
}

static void every_piece_is_done_once(void **state) {
    static struct tally tally;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        int threads = (int)trial_between(0, 6);
        int64_t count = trial_between(0, round % 10 == 0 ? PIECES : 8);
        struct blasd_parallel loop = loop_of(&tally, count, threads);
        if (round % 100 == 0) blasd_parallel_close_together(round % 200 == 0);
        if (round % 500 == 150) blasd_parallel_dismiss(); /* while helpers look for a loop */
        assert_true(blasd_parallel_run(&loop));
        assert_true(each_once(&tally, count));
    }
    blasd_parallel_close_together(false);
}

static void more_threads_than_slots_are_not_used(void **state) {
    static struct tally tally;
    struct blasd_parallel loop = loop_of(&tally, PIECES, 10 * BLASD_PARALLEL_MAX);
    (void)state;
    assert_true(blasd_parallel_run(&loop));
    assert_true(each_once(&tally, PIECES));
    assert_true(threads_of_process() <= BLASD_PARALLEL_MAX + 8 /* what others started */);
    blasd_parallel_dismiss();
}

/* Pieces that wait until all `threads` are at one each, and note who they are. */
struct meeting {
    int threads;
    atomic_int arrived;
    pid_t who[BLASD_PARALLEL_MAX];
    int policy[BLASD_PARALLEL_MAX], nice[BLASD_PARALLEL_MAX];
    bool deaf[BLASD_PARALLEL_MAX]; /* SIGTERM is blocked */
};

static bool meet(void *arg, int64_t i, int slot) {
    struct meeting *meeting = arg;
    struct sched_param param;
    sigset_t blocked;
    (void)i;
    meeting->who[slot] = gettid();
    pthread_getschedparam(pthread_self(), &meeting->policy[slot], &param);
    meeting->nice[slot] = getpriority(PRIO_PROCESS, (id_t)gettid());
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    meeting->deaf[slot] = sigismember(&blocked, SIGTERM) == 1;
    atomic_fetch_add(&meeting->arrived, 1);
    for (int n = 0; n < WAIT_MS && meeting->arrived < meeting->threads; n++) pause_briefly();
    return meeting->arrived == meeting->threads;
}

static bool hold_meeting(struct meeting *meeting, int threads) {
    struct blasd_parallel loop = {
        .piece = meet, .arg = meeting, .count = threads, .threads = threads};
    *meeting = (struct meeting){.threads = threads};
    return blasd_parallel_run(&loop);
}

static bool was_at(const struct meeting *meeting, pid_t who) {
    for (int i = 0; i < meeting->threads; i++)
        if (meeting->who[i] == who) return true;
    return false;
}

static void helpers_stay_until_dismissed(void **state) {
    struct meeting first, next;
    int before;
    (void)state;
    blasd_parallel_dismiss();
    before = threads_alone();
    assert_true(hold_meeting(&first, 4));
    assert_int_equal(first.who[0], gettid());
    for (int round = 0; round < 50; round++) {
        assert_true(hold_meeting(&next, (int)trial_between(2, 4)));
        for (int i = 0; i < next.threads; i++) assert_true(was_at(&first, next.who[i]));
    }
    assert_int_equal(threads_of_process(), before + 3);
    blasd_parallel_dismiss();
    blasd_parallel_dismiss();
    expect_threads(before);
    assert_true(hold_meeting(&next, 2));
    blasd_parallel_dismiss();
}

static void signals_go_to_those_who_wait_for_them(void **state) {
    struct meeting meeting;
    (void)state;
    assert_true(hold_meeting(&meeting, 3));
    assert_false(meeting.deaf[0]);
    assert_true(meeting.deaf[1] && meeting.deaf[2]);
}

static void *heavy_thread(void *arg) {
    struct meeting *meetings = arg;
    bool held = hold_meeting(&meetings[0], 3);
    setpriority(PRIO_PROCESS, (id_t)gettid(), 10);
    blasd_parallel_background();
    return held && hold_meeting(&meetings[1], 4) && hold_meeting(&meetings[2], 3) ? arg : NULL;
}

/* A slow pool's helpers give way, those it had before included; those of the thread beside it do
 * not, while both run, and they are not the same. A slow pool that ends takes its own along. */
static void helpers_weigh_what_the_one_they_help_does(void **state) {
    struct meeting mine;
    static struct meeting theirs[3];
    pthread_t thread;
    void *went_well;
    int before;
    (void)state;
    assert_true(hold_meeting(&mine, 3));
    before = at_start + 2;
    expect_threads(before);
    assert_int_equal(pthread_create(&thread, NULL, heavy_thread, theirs), 0);
    for (int round = 0; round < 20; round++) {
        assert_true(hold_meeting(&mine, 3));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(mine.policy[i], SCHED_OTHER);
            assert_int_equal(mine.nice[i], getpriority(PRIO_PROCESS, 0));
        }
    }
    pthread_join(thread, &went_well);
    assert_non_null(went_well);
    for (int i = 0; i < 3; i++) assert_int_equal(theirs[0].policy[i], SCHED_OTHER);
    for (int m = 1; m < 3; m++) {
        assert_int_equal(theirs[m].policy[0], SCHED_OTHER);
        assert_int_equal(theirs[m].nice[0], 10);
        for (int i = 1; i < theirs[m].threads; i++) {
            assert_int_equal(theirs[m].policy[i], SCHED_OTHER);
            assert_int_equal(theirs[m].nice[i], 15);
            assert_false(was_at(&mine, theirs[m].who[i]));
        }
    }
    expect_threads(before);
}

struct half_way {
    struct blasd_watch watch;
    double last;
    bool fell;
};

static bool stop_half_way(struct blasd_watch *watch, double progress) {
    struct half_way *half = (struct half_way *)watch;
    if (progress < half->last) half->fell = true;
    half->last = progress;
    return progress < 0.5;
}

static void a_stop_ends_one_loop_and_not_the_next(void **state) {
    static struct tally tally;
    (void)state;
    for (int threads = 1; threads < 4; threads++) {
        struct half_way half = {.watch.go_on = stop_half_way};
        struct blasd_parallel loop = loop_of(&tally, PIECES, threads);
        tally.stop_at = 5;
        assert_false(blasd_parallel_run(&loop));
        assert_int_equal(tally.done[5], 1);
        if (threads == 1) assert_int_equal(tally.done[6], 0);
        loop = loop_of(&tally, PIECES, 1);
        loop.watch = &half.watch;
        assert_false(blasd_parallel_run(&loop));
        assert_true(half.last >= 0.5 && half.last < 0.51 && !half.fell);
        assert_int_equal(tally.done[PIECES - 1], 0);
        loop = loop_of(&tally, PIECES, threads);
        assert_true(blasd_parallel_run(&loop));
        assert_true(each_once(&tally, PIECES));
    }
}

static bool let_go_on(struct blasd_watch *watch, double progress) {
    (void)watch, (void)progress;
    return true;
}

/* How many share the machine, as the watch says, and how often it was asked. */
struct shared {
    struct blasd_watch watch;
    int sharers, asked;
};

static int say_sharers(struct blasd_watch *watch) {
    struct shared *shared = (struct shared *)watch;
    shared->asked++;
    return shared->sharers;
}

static int helpers_for(int threads, int sharers) {
    static struct tally tally;
    struct shared shared = {.watch = {.go_on = let_go_on, .sharers = say_sharers},
                            .sharers = sharers};
    struct blasd_parallel loop = loop_of(&tally, 50, threads);
    int before;
    loop.watch = &shared.watch;
    blasd_parallel_dismiss();
    before = threads_alone();
    assert_true(blasd_parallel_run(&loop));
    assert_true(each_once(&tally, 50));
    assert_int_equal(shared.asked, threads > 1);
    return threads_of_process() - before;
}

static void a_loop_takes_its_part_of_the_threads(void **state) {
    (void)state;
    assert_int_equal(helpers_for(4, 1), 3);
    assert_int_equal(helpers_for(4, 2), 1);
    assert_int_equal(helpers_for(5, 2), 2);
    assert_int_equal(helpers_for(2, 2), 0);
    assert_int_equal(helpers_for(2, 9), 0);
    assert_int_equal(helpers_for(1, 1), 0);
}

static struct tally inner[8];

static bool run_inner(void *arg, int64_t i, int slot) {
    struct blasd_parallel loop = loop_of(&inner[i], 20, 4);
    (void)arg;
    (void)slot;
    return blasd_parallel_run(&loop) && each_once(&inner[i], 20);
}

static void a_loop_in_a_piece_runs_on_its_thread(void **state) {
    struct blasd_parallel loop = {.piece = run_inner, .count = 8, .threads = 3};
    int before;
    (void)state;
    blasd_parallel_dismiss();
    before = threads_alone();
    for (int round = 0; round < 100; round++) assert_true(blasd_parallel_run(&loop));
    assert_int_equal(threads_of_process(), before + 2);
}

/* Runs `body` in a forked process; its threads are none of ours. */
static void in_a_fork(bool (*body)(void)) {
    int status;
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(600);
        _exit(body() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TRIAL_UNUSED static bool meets_anew(void) {
    struct meeting meeting;
    bool held = hold_meeting(&meeting, 3);
    blasd_parallel_dismiss();
    return held;
}

static bool dismisses_only(void) {
    blasd_parallel_dismiss();
    return true;
}

static void a_forked_process_has_helpers_of_its_own(void **state) {
    struct meeting meeting;
    (void)state;
    for (int round = 0; round < 20; round++) {
        assert_true(hold_meeting(&meeting, 3));
#ifndef __SANITIZE_THREAD__ /* it ends a forked process that starts threads */
        in_a_fork(meets_anew);
#endif
        in_a_fork(dismisses_only);
    }
    assert_true(hold_meeting(&meeting, 3));
}

static void *sleep_on(void *arg) {
    for (;;) pause();
    return arg;
}

/* There is no room for new stacks; those of threads that the process had before the fork are used
 * up first. */
static bool loops_without_threads(void) {
    static struct tally tally;
    struct blasd_parallel loop = loop_of(&tally, PIECES, 4);
    pthread_t thread;
    int started = 0;
    blasd_parallel_dismiss();
    if (setrlimit(RLIMIT_AS, &(struct rlimit){1 << 20, 1 << 20}) != 0) return false;
    while (started < 200 && pthread_create(&thread, NULL, sleep_on, NULL) == 0) started++;
    if (started == 200) return false;
    return blasd_parallel_run(&loop) && each_once(&tally, PIECES);
}

static void where_no_thread_can_be_started_the_loop_runs_on_one(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* sanitizers need address space of their own */
#endif
    in_a_fork(loops_without_threads);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_no_thread_can_be_started_the_loop_runs_on_one),
        cmocka_unit_test(every_piece_is_done_once),
        cmocka_unit_test(more_threads_than_slots_are_not_used),
        cmocka_unit_test(helpers_stay_until_dismissed),
        cmocka_unit_test(signals_go_to_those_who_wait_for_them),
        cmocka_unit_test(helpers_weigh_what_the_one_they_help_does),
        cmocka_unit_test(a_stop_ends_one_loop_and_not_the_next),
        cmocka_unit_test(a_loop_takes_its_part_of_the_threads),
        cmocka_unit_test(a_loop_in_a_piece_runs_on_its_thread),
        cmocka_unit_test(a_forked_process_has_helpers_of_its_own),
    };
    at_start = threads_of_process();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

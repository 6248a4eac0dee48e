/* Every state of an exchange with every state that it may be told to enter. */
#include "http/exchange.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* A column a state, as its row: head body Fetching resolving admission submitted waiting refused
 * answered gone. */
static const char *const table[HTTP_STATES] = {
    [HTTP_AT_HEAD] = "-b-----r-g",      /* a head that is refused, or whose client is */
    [HTTP_AT_BODY] = "--f---wr-g",      /* all is there: jobs are made, the rest is asked for */
    [HTTP_AT_FETCHING] = "---rAs--ag",  /* read, with or without references */
    [HTTP_AT_RESOLVING] = "----As--ag", /* found, or not */
    [HTTP_AT_ADMISSION] = "-----s--ag", /* let in, or late */
    [HTTP_AT_SUBMITTED] = "----A-w-ag", /* the queue was full, or ended the job at once */
    [HTTP_AT_WAITING] = "--------ag",   /* never submitted again */
    [HTTP_AT_REFUSED] = "-------rag",   /* another reason does not change the answer */
    [HTTP_AT_ANSWERED] = "--------ag",  /* a stream's client leaves */
    [HTTP_AT_GONE] = "----------",      /* an answer that comes late is not sent */
};

static void test_table(void **state) {
    (void)state;
    for (int from = 0; from < HTTP_STATES; from++)
        for (int to = 0; to < HTTP_STATES; to++) {
            struct http_exchange exchange = {.state = (enum http_state)from};
            bool may = table[from][to] != '-';
            blasd_list_init(&exchange.admission);
            assert_int_equal(http_exchange_enter(&exchange, (enum http_state)to), may);
            assert_int_equal(exchange.state, may ? to : from);
        }
}

static void test_leaves_admission(void **state) {
    struct blasd_list waiting;
    (void)state;
    for (int to = 0; to < HTTP_STATES; to++) {
        struct http_exchange exchange = {.state = HTTP_AT_ADMISSION};
        blasd_list_init(&waiting);
        blasd_list_add(&waiting, &exchange.admission);
        assert_int_equal(blasd_list_empty(&waiting),
                         http_exchange_enter(&exchange, (enum http_state)to));
    }
}

static void test_open(void **state) {
    (void)state;
    for (int i = 0; i < HTTP_STATES; i++) {
        struct http_exchange exchange = {.state = (enum http_state)i};
        assert_int_equal(http_exchange_open(&exchange), i <= HTTP_AT_WAITING);
        assert_int_equal(http_body_coming(&exchange),
                         i == HTTP_AT_HEAD || i == HTTP_AT_BODY || i == HTTP_AT_REFUSED);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_leaves_admission),
                                       cmocka_unit_test(test_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Lists, hash tables and hexadecimal text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/hex.h"
#include "base/list.h"

struct item {
    int value;
    struct blasd_list node;
    struct blasd_hash_node hashed;
};

static void expect(struct blasd_list *list, const char *values) {
    BLASD_LIST_EACH(node, list) {
        assert_int_equal(blasd_container_of(node, struct item, node)->value, *values++ - '0');
    }
    assert_int_equal(*values, '\0');
}

static void a_list_keeps_its_order(void **state) {
    struct item items[5] = {0};
    struct blasd_list list;
    (void)state;
    blasd_list_init(&list);
    assert_true(blasd_list_empty(&list));
    expect(&list, "");
    for (int i = 0; i < 5; i++) {
        items[i].value = i;
        blasd_list_append(&list, &items[i].node);
    }
    expect(&list, "01234");
    blasd_list_remove(&items[0].node);
    blasd_list_remove(&items[0].node); /* does nothing */
    blasd_list_remove(&items[4].node);
    blasd_list_remove(&items[2].node);
    expect(&list, "13");
    blasd_list_add(&list, &items[4].node);
    blasd_list_add(&items[1].node, &items[2].node);
    expect(&list, "4123");
    BLASD_LIST_EACH(node, &list) {
        blasd_list_remove(node);
    }
    assert_true(blasd_list_empty(&list));
}

enum { MANY = 1000 };

static void count(void *arg, struct blasd_hash_node *node) {
    struct blasd_hash *table = arg;
    struct item *item = blasd_container_of(node, struct item, hashed);
    item->value = -item->value;
    if (item->value % 2 == 0) blasd_hash_remove(table, node);
}

static struct item *seek(struct blasd_hash *table, uint64_t hash, int value) {
    struct blasd_hash_node *node = NULL;
    while ((node = blasd_hash_find(table, hash, node)) != NULL)
        if (blasd_container_of(node, struct item, hashed)->value == value)
            return blasd_container_of(node, struct item, hashed);
    return NULL;
}

static void a_table_finds_what_is_in_it(void **state) {
    static struct item items[MANY];
    struct blasd_hash table = {0};
    (void)state;
    assert_null(blasd_hash_find(&table, 1, NULL));
    assert_null(blasd_hash_any(&table));
    for (int i = 0; i < MANY; i++) {
        items[i].value = i;
        /* three share each hash */
        assert_int_equal(blasd_hash_add(&table, &items[i].hashed, (uint64_t)i / 3), 0);
    }
    assert_int_equal(table.count, MANY);
    for (int i = 0; i < MANY; i++) assert_ptr_equal(seek(&table, (uint64_t)i / 3, i), &items[i]);
    assert_null(seek(&table, 0, 3));
    assert_null(seek(&table, MANY, MANY));
    blasd_hash_each(&table, count, &table);
    assert_int_equal(table.count, MANY / 2);
    for (int i = 0; i < MANY; i++) {
        struct item *found = seek(&table, (uint64_t)i / 3, -i);
        assert_ptr_equal(found, i % 2 == 0 ? NULL : &items[i]);
    }
    while (blasd_hash_any(&table) != NULL) blasd_hash_remove(&table, blasd_hash_any(&table));
    assert_int_equal(table.count, 0);
    blasd_hash_release(&table);
}

static void every_byte_counts(void **state) {
    char bytes[20] = {0};
    (void)state;
    for (size_t len = 0; len <= sizeof bytes; len++) {
        uint64_t was = blasd_hash_bytes(7, bytes, len);
        assert_true(was != blasd_hash_bytes(8, bytes, len));
        for (size_t i = 0; i < len; i++) {
            bytes[i] = 1;
            assert_true(was != blasd_hash_bytes(7, bytes, len));
            bytes[i] = 0;
        }
        if (len > 0) assert_true(was != blasd_hash_bytes(7, bytes, len - 1));
    }
}

static void hexadecimal_text(void **state) {
    char text[17] = {0};
    (void)state;
    assert_ptr_equal(blasd_hex_write(text, UINT64_C(0x0123456789abcdef), 16), text + 16);
    assert_string_equal(text, "0123456789abcdef");
    text[blasd_hex_write(text, 0xfa5, 2) - text] = '\0';
    assert_string_equal(text, "a5");
    assert_true(blasd_hex_begins("0aF", 2));
    assert_false(blasd_hex_begins("0af", 2));
    assert_false(blasd_hex_begins("0", 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_keeps_its_order),
        cmocka_unit_test(a_table_finds_what_is_in_it),
        cmocka_unit_test(every_byte_counts),
        cmocka_unit_test(hexadecimal_text),
    };
    return cmocka_run_group_tests_name("lists", tests, NULL, NULL);
}

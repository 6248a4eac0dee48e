/* Sums of JSON documents, member by member. */
#include "wire/stats_sum.h"

#include "wire/stats_load.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(json_t *to, const json_t *from);

static json_t *add_numbers(const char *key, const json_t *a, const json_t *b) {
    double x = json_number_value(a), y = json_number_value(b);
    if (strcmp(key, "oldest_us") == 0) return json_integer((json_int_t)(x > y ? x : y));
    if (json_is_integer(a) && json_is_integer(b))
        return json_integer(json_integer_value(a) + json_integer_value(b));
    return json_real(x + y);
}

/* Whether its members are the same thing, told more than once. */
static bool is_told_whole(const char *key) {
    return strcmp(key, "workers") == 0 || strcmp(key, "figures") == 0;
}

static int add_member(json_t *to, const char *key, json_t *from) {
    json_t *there = json_object_get(to, key);
    if (there == NULL) return json_object_set_new(to, key, json_deep_copy(from));
    if (is_told_whole(key)) return json_object_update_missing(there, from);
    if (json_is_number(there) && json_is_number(from))
        return json_object_set_new(to, key, add_numbers(key, there, from));
    return json_is_object(there) && json_is_object(from) ? add(there, from) : 0;
}

/* Adds all members of the one object to those of the other. */
static int add(json_t *to, const json_t *from) {
    const char *key;
    json_t *value;
    int failed = 0;
    json_object_foreach((json_t *)(size_t)from, key, value) failed |= add_member(to, key, value);
    return failed;
}

/* Which rows are one. */
static char *row_key(const json_t *row) {
    const json_t *tenant = json_object_get(row, "tenant"), *op = json_object_get(row, "op");
    struct blasd_buf key;
    blasd_buf_init(&key, 4096);
    if (blasd_buf_printf(&key, "%.17g %s %s", json_number_value(json_object_get(row, "hour")),
                         json_is_string(op) ? json_string_value(op) : "",
                         json_is_string(tenant) ? json_string_value(tenant) : "") != 0)
        blasd_buf_release(&key);
    return key.data;
}

/* Of a row, or of what is a row already, the figures; the rest is the same. */
static int add_row(json_t *rows, json_t *row) {
    static const char *const same[] = {"tenant", "hour", "op"};
    char *key = row_key(row);
    json_t *there = key == NULL ? NULL : json_object_get(rows, key), *figures;
    int failed = key == NULL;
    if (key != NULL && there == NULL) {
        failed = json_object_set(rows, key, row);
    } else if (key != NULL) {
        figures = json_copy(row);
        for (size_t i = 0; i < sizeof same / sizeof *same; i++) json_object_del(figures, same[i]);
        failed = figures == NULL || add(there, figures) != 0;
        json_decref(figures);
    }
    free(key);
    return failed;
}

static int add_rows(json_t *rows, const json_t *from) {
    json_t *row;
    size_t i;
    int failed = 0;
    json_array_foreach(from, i, row) failed |= add_row(rows, row);
    return failed;
}

/* The rows, in the order in which they came first. */
static int rows_of(json_t *sum, json_t *rows) {
    json_t *all = json_array(), *row;
    const char *key;
    int failed = all == NULL;
    json_object_foreach(rows, key, row) failed |= json_array_append(all, row);
    return json_object_set_new(sum, "rows", all) != 0 || failed;
}

static int append(const char *bytes, size_t len, void *arg) {
    return blasd_buf_add(arg, bytes, len);
}

int blasd_stats_sum(const char *const *texts, const size_t *lens, int count,
                    struct blasd_buf *out) {
    json_t *sum = json_object(), *rows = json_object();
    bool used = false;
    int failed = sum == NULL || rows == NULL;
    for (int i = 0; failed == 0 && i < count; i++) {
        json_t *one = blasd_stats_load(texts[i], lens[i]), *its = json_object_get(one, "rows");
        used |= its != NULL;
        failed |= one == NULL || add_rows(rows, its) != 0;
        if (one != NULL) json_object_del(one, "rows");
        failed |= add(sum, one);
        json_decref(one);
    }
    if (failed == 0 && used) failed = rows_of(sum, rows);
    if (failed == 0) failed = json_dump_callback(sum, append, out, JSON_COMPACT);
    json_decref(rows);
    json_decref(sum);
    return failed == 0 ? 0 : -1;
}

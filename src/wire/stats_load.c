/* All at once, as a rule; only where that fails, member by member. */
#include "wire/stats_load.h"

#include "wire/json_text.h"

#include <jansson.h>
#include <string.h>

#define DEPTH_MOST 2000 /* Redis reads none that is deeper than 1,000 */

struct walk {
    const struct blasd_json_text *text;
    json_t *to;   /* borrowed */
    bool lenient; /* what is no JSON is left out */
};

static int read_all(struct walk *walk, const char *p, const char **next, struct blasd_err *err);

/* Whether the member's own members are workers. */
static bool is_of_workers(const char *name) {
    return strcmp(name, "workers") == 0 || strcmp(name, "figures") == 0;
}

static int read_member(void *arg, const char *quote, const char *name, const char *value,
                       const char **next, struct blasd_err *err) {
    struct walk *walk = arg;
    struct walk inner = {.text = walk->text, .lenient = true};
    const char *behind;
    struct blasd_buf key;
    json_t *read = NULL;
    int rc = blasd_json_inside(walk->text, quote, &key, &behind, err);
    if (rc == 0 && !walk->lenient && is_of_workers(name) && *value == '{') {
        inner.to = read = json_object();
        rc = read_all(&inner, value, next, err);
    } else if (rc == 0 && (rc = blasd_json_skip(walk->text, value, next, err)) == 0) {
        read = json_loadb(value, (size_t)(*next - value), JSON_DECODE_ANY, NULL);
        if (read == NULL && !walk->lenient) rc = blasd_json_fail(walk->text, value, err, "no JSON");
    }
    if (read != NULL && json_object_set_new(walk->to, key.data, read) != 0)
        rc = blasd_no_memory(err);
    blasd_buf_release(&key);
    return rc;
}

static int read_all(struct walk *walk, const char *p, const char **next, struct blasd_err *err) {
    return blasd_json_members(walk->text, p, read_member, walk, next, err);
}

json_t *blasd_stats_load(const char *text, size_t len) {
    json_t *document = json_loadb(text, len, 0, NULL);
    struct blasd_json_text all;
    struct walk walk = {.text = &all};
    struct blasd_buf copy;
    struct blasd_err err;
    const char *next;
    if (document != NULL || len == 0 || text[0] != '{') return document;
    if (blasd_json_hold(&copy, text, len, DEPTH_MOST, &all, &err) == 0) {
        walk.to = document = json_object();
        if (read_all(&walk, all.start, &next, &err) != 0 || blasd_json_space(next) != all.end) {
            json_decref(document);
            document = NULL;
        }
    }
    blasd_buf_release(&copy);
    return document;
}

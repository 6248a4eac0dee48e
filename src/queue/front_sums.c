/* What is asked of all queues: lists, figures, use. A question goes to each, or to those that are
 * there, and is answered once all have answered. Read next: ../wire/stats_sum.h. */
#include "queue/front_set.h"
#include "wire/stats_sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a list: where each queue's part of the next page begins, "" at its begin, END behind its end.
 * The cursor is "FIRST~PART~PART...", FIRST being the queue that comes first to the next page. */
#define END "."
#define PART_MOST 128

struct paging {
    int first;
    char parts[BLASD_QUEUES_MOST][PART_MOST];
};

struct question;

struct part {
    struct question *question;
    int number;
};

struct question {
    struct blasd_list node; /* in all->questions */
    struct blasd_front_queues *all;
    int left, answers;
    bool partly; /* what some answer will do */
    struct blasd_err err;
    struct part part[BLASD_QUEUES_MOST];
    struct blasd_buf bytes;           /* of texts, or records: one after the other */
    size_t *lens;                     /* owned: of each */
    struct blasd_stored_tensor *rows; /* owned: of a list of tensors */
    int count;                        /* of either */
    struct paging paging;
    int limit, rounds;                       /* of a page: its rows, and how often was asked */
    const struct blasd_principal *principal; /* borrowed, of lists */
    struct blasd_list_query query;           /* the same */
    blasd_text_fn text;
    blasd_list_fn list;
    blasd_tensors_fn tensors;
    void *arg;
};

static void question_free(struct question *question) {
    blasd_list_remove(&question->node);
    blasd_buf_release(&question->bytes);
    free(question->lens);
    free(question->rows);
    free(question);
}

void front_sums_free(struct blasd_front_queues *all) {
    while (!blasd_list_empty(&all->questions))
        question_free(blasd_container_of(all->questions.next, struct question, node));
}

static void no_memory(struct blasd_err *err) {
    blasd_fail(err, BLASD_E_queue_unavailable, "", "the front end is out of memory");
}

/* One answer is to come beside the queues': the caller's, once it has asked. */
static struct question *question_new(struct blasd_front_queues *all, void *arg) {
    struct question *question = calloc(1, sizeof *question);
    if (question == NULL) return NULL;
    question->all = all;
    question->arg = arg;
    question->left = 1;
    blasd_list_append(&all->questions, &question->node);
    blasd_buf_init(&question->bytes, BLASD_GIB);
    for (int i = 0; i < all->count; i++) question->part[i] = (struct part){question, i};
    return question;
}

static void note(struct question *question, const struct blasd_err *err) {
    if (err == NULL)
        question->answers++;
    else if (question->err.code == BLASD_OK)
        question->err = *err;
}

static bool failed(const struct question *question) {
    return question->err.code != BLASD_OK && !(question->partly && question->answers > 0);
}

/* Keeps a text, or a record; false where memory has run out. */
static bool keep(struct question *question, const void *bytes, size_t len) {
    size_t *lens = realloc(question->lens, ((size_t)question->count + 1) * sizeof *lens);
    if (lens != NULL) question->lens = lens;
    if (lens == NULL || blasd_buf_add(&question->bytes, bytes, len) != 0) return false;
    question->lens[question->count++] = len;
    return true;
}

/* Where each text, or record, begins. NULL: no memory. */
static const void **places(const struct question *question) {
    const void **at = calloc((size_t)question->count + 1, sizeof *at);
    size_t from = 0;
    for (int i = 0; at != NULL && i < question->count; i++) {
        at[i] = question->bytes.data + from;
        from += question->lens[i];
    }
    return at;
}

/* Figures. */

static void figures_end(struct question *question) {
    const void **at = failed(question) ? NULL : places(question);
    struct blasd_buf sum;
    struct blasd_err err = question->err;
    blasd_buf_init(&sum, 64 * BLASD_MIB);
    if (!failed(question) && (at == NULL || blasd_stats_sum((const char *const *)at, question->lens,
                                                            question->count, &sum) != 0)) {
        no_memory(&err);
        question->answers = 0;
        question->err = err;
    }
    if (failed(question))
        question->text(question->arg, &err, NULL, 0);
    else
        question->text(question->arg, NULL, sum.data, sum.len);
    blasd_buf_release(&sum);
    free(at);
    question_free(question);
}

static void on_text(void *arg, const struct blasd_err *err, const char *text, size_t len) {
    struct question *question = ((struct part *)arg)->question;
    struct blasd_err own;
    if (err == NULL && !keep(question, text, len)) {
        no_memory(&own);
        err = &own;
    }
    note(question, err);
    if (--question->left == 0) figures_end(question);
}

/* Of figures: who is to be asked, where those who do not answer are passed over. */
static bool is_asked(const struct blasd_front_queues *all, int i) {
    bool any = false;
    for (int k = 0; k < all->count; k++) any |= blasd_front_queue_view(all->of[k])->available;
    return !any || blasd_front_queue_view(all->of[i])->available;
}

static struct question *figures_new(struct blasd_front_queues *all, blasd_text_fn done, void *arg) {
    struct question *question = question_new(all, arg);
    struct blasd_err err;
    if (question == NULL) {
        no_memory(&err);
        done(arg, &err, NULL, 0);
        return NULL;
    }
    question->text = done;
    question->partly = true;
    return question;
}

static void figures_asked(struct question *question) {
    if (--question->left == 0) figures_end(question);
}

void blasd_front_queues_stats(struct blasd_front_queues *all, blasd_text_fn done, void *arg) {
    struct question *question;
    if (all->count == 1) {
        blasd_front_queue_stats(all->of[0], done, arg);
        return;
    }
    if ((question = figures_new(all, done, arg)) == NULL) return;
    for (int i = 0; i < all->count; i++) {
        if (!is_asked(all, i)) continue;
        question->left++;
        blasd_front_queue_stats(all->of[i], on_text, &question->part[i]);
    }
    figures_asked(question);
}

void blasd_front_queues_stats_of(struct blasd_front_queues *all,
                                 const struct blasd_principal *principal, blasd_text_fn done,
                                 void *arg) {
    struct question *question;
    if (all->count == 1) {
        blasd_front_queue_stats_of(all->of[0], principal, done, arg);
        return;
    }
    if ((question = figures_new(all, done, arg)) == NULL) return;
    for (int i = 0; i < all->count; i++) {
        if (!is_asked(all, i)) continue;
        question->left++;
        blasd_front_queue_stats_of(all->of[i], principal, on_text, &question->part[i]);
    }
    figures_asked(question);
}

void blasd_front_queues_figures(struct blasd_front_queues *all, bool tenants, blasd_text_fn done,
                                void *arg) {
    struct question *question;
    if (all->count == 1) {
        blasd_front_queue_figures(all->of[0], tenants, done, arg);
        return;
    }
    if ((question = figures_new(all, done, arg)) == NULL) return;
    for (int i = 0; i < all->count; i++) {
        if (!is_asked(all, i)) continue;
        question->left++;
        blasd_front_queue_figures(all->of[i], tenants, on_text, &question->part[i]);
    }
    figures_asked(question);
}

/* What is billed is told whole. */
void blasd_front_queues_usage(struct blasd_front_queues *all, const char *tenant, int64_t from_day,
                              int64_t to_day, blasd_text_fn done, void *arg) {
    struct question *question;
    if (all->count == 1) {
        blasd_front_queue_usage(all->of[0], tenant, from_day, to_day, done, arg);
        return;
    }
    if ((question = figures_new(all, done, arg)) == NULL) return;
    question->partly = false;
    question->left += all->count;
    for (int i = 0; i < all->count; i++)
        blasd_front_queue_usage(all->of[i], tenant, from_day, to_day, on_text, &question->part[i]);
    figures_asked(question);
}

/* Lists. */

/* False where the text is no cursor of ours. */
static bool read_cursor(const struct blasd_front_queues *all, const char *text,
                        struct paging *ret) {
    char *end;
    memset(ret, 0, sizeof *ret);
    if (text == NULL || text[0] == '\0') return true;
    unsigned long first = strtoul(text, &end, 10);
    if (end == text || first >= (unsigned long)all->count) return false;
    ret->first = (int)first;
    for (int i = 0; i < all->count; i++) {
        size_t len;
        if (*end != '~') return false;
        text = end + 1;
        len = strcspn(text, "~");
        if (len >= PART_MOST) return false;
        memcpy(ret->parts[i], text, len);
        end += 1 + len;
    }
    return *end == '\0';
}

static bool has_ended(const struct paging *paging, int i) {
    return strcmp(paging->parts[i], END) == 0;
}

/* Where the next page goes on; "" at the end. False: no memory. */
static bool write_cursor(const struct question *question, struct blasd_buf *out) {
    const struct paging *paging = &question->paging;
    int count = question->all->count, open = 0, failure;
    for (int i = 0; i < count; i++) open += !has_ended(paging, i);
    if (open == 0) return blasd_buf_add(out, "", 1) == 0;
    failure = blasd_buf_printf(out, "%d", paging->first);
    for (int i = 0; i < count; i++) failure |= blasd_buf_printf(out, "~%s", paging->parts[i]);
    return failure == 0 && blasd_buf_add(out, "", 1) == 0;
}

#define ROUNDS_MOST (BLASD_QUEUES_MOST + 2)

/* How many rows of what the page lacks each queue gives: those that have more by equal parts, from
 * the first on. Whether it is to be asked (again) at all. */
static bool share_page(struct question *question, int share[BLASD_QUEUES_MOST]) {
    struct paging *paging = &question->paging;
    int count = question->all->count, left = question->limit - question->count;
    int open = 0, nth = 0, first = paging->first;
    memset(share, 0, BLASD_QUEUES_MOST * sizeof *share);
    for (int i = 0; i < count; i++) open += !has_ended(paging, i);
    if (question->err.code != BLASD_OK || left <= 0 || open == 0 ||
        question->rounds++ == ROUNDS_MOST)
        return false;
    for (int k = 0; k < count; k++) {
        int i = (first + k) % count;
        if (has_ended(paging, i)) continue;
        share[i] = left / open + (nth++ < left % open ? 1 : 0);
        if (share[i] > 0) paging->first = (i + 1) % count;
    }
    return true;
}

#define PAGE_MOST 100 /* as one queue gives at the most */

static int page_limit(int limit) {
    return limit < 1 ? 1 : limit > PAGE_MOST ? PAGE_MOST : limit;
}

/* Notes where the part of queue `number` goes on. */
static void go_on_at(struct question *question, int number, const char *cursor) {
    struct blasd_err err;
    char *part = question->paging.parts[number];
    if (strlen(cursor) < PART_MOST) {
        snprintf(part, PART_MOST, "%s", cursor[0] == '\0' ? END : cursor);
        return;
    }
    blasd_fail(&err, BLASD_E_internal_error, "", "the queue's cursor is too long");
    note(question, &err);
}

static void list_end(struct question *question) {
    const void **at = places(question);
    struct blasd_buf cursor;
    blasd_buf_init(&cursor, BLASD_MIB);
    if (question->err.code == BLASD_OK && (at == NULL || !write_cursor(question, &cursor)))
        no_memory(&question->err);
    if (question->err.code != BLASD_OK)
        question->list(question->arg, &question->err, "", NULL, NULL, 0);
    else
        question->list(question->arg, NULL, cursor.data, at, question->lens, question->count);
    blasd_buf_release(&cursor);
    free(at);
    question_free(question);
}

static void on_list(void *arg, const struct blasd_err *err, const char *cursor,
                    const void *const *records, const size_t *lens, int count);

/* Asks for what the page lacks; where that is nothing, or cannot be had, it is done. */
static void list_more(struct question *question) {
    int share[BLASD_QUEUES_MOST];
    if (!share_page(question, share)) {
        list_end(question);
        return;
    }
    question->left = 1;
    for (int i = 0; i < question->all->count; i++) {
        struct blasd_list_query query = question->query;
        if (share[i] == 0) continue;
        query.limit = share[i];
        query.cursor = question->paging.parts[i];
        question->left++;
        blasd_front_queue_list(question->all->of[i], question->principal, &query, on_list,
                               &question->part[i]);
    }
    if (--question->left == 0) list_end(question);
}

static void on_list(void *arg, const struct blasd_err *err, const char *cursor,
                    const void *const *records, const size_t *lens, int count) {
    struct part *part = arg;
    struct question *question = part->question;
    struct blasd_err own;
    for (int i = 0; err == NULL && i < count; i++)
        if (!keep(question, records[i], lens[i])) {
            no_memory(&own);
            err = &own;
        }
    note(question, err);
    if (err == NULL) go_on_at(question, part->number, cursor);
    if (--question->left == 0) list_more(question);
}

void blasd_front_queues_list(struct blasd_front_queues *all,
                             const struct blasd_principal *principal,
                             const struct blasd_list_query *query, blasd_list_fn done, void *arg) {
    struct question *question = NULL;
    struct blasd_list_query own = *query;
    struct blasd_err err;
    struct paging paging;
    /* what is no cursor of ours is none of a queue's, which says so */
    if (all->count == 1 || !read_cursor(all, query->cursor, &paging)) {
        if (all->count > 1) own.cursor = "~";
        blasd_front_queue_list(all->of[0], principal, &own, done, arg);
        return;
    }
    if ((question = question_new(all, arg)) == NULL) {
        no_memory(&err);
        done(arg, &err, "", NULL, NULL, 0);
        return;
    }
    question->list = done;
    question->paging = paging;
    question->principal = principal;
    question->query = own;
    question->limit = page_limit(query->limit);
    list_more(question);
}

static int newest_first(const void *a, const void *b) {
    const struct blasd_stored_tensor *x = a, *y = b;
    if (x->created_us != y->created_us) return x->created_us < y->created_us ? 1 : -1;
    return strcmp(y->id, x->id);
}

static void tensors_end(struct question *question) {
    struct blasd_buf cursor;
    blasd_buf_init(&cursor, BLASD_MIB);
    if (question->err.code == BLASD_OK && !write_cursor(question, &cursor))
        no_memory(&question->err);
    if (question->count > 0)
        qsort(question->rows, (size_t)question->count, sizeof *question->rows, newest_first);
    if (question->err.code != BLASD_OK)
        question->tensors(question->arg, &question->err, NULL, 0, "");
    else
        question->tensors(question->arg, NULL, question->rows, question->count, cursor.data);
    blasd_buf_release(&cursor);
    question_free(question);
}

static void on_tensors(void *arg, const struct blasd_err *err,
                       const struct blasd_stored_tensor *tensors, int count, const char *cursor);

/* As list_more. */
static void tensors_more(struct question *question) {
    int share[BLASD_QUEUES_MOST];
    if (!share_page(question, share)) {
        tensors_end(question);
        return;
    }
    question->left = 1;
    for (int i = 0; i < question->all->count; i++) {
        if (share[i] == 0) continue;
        question->left++;
        blasd_front_queue_tensor_list(question->all->of[i], question->principal, share[i],
                                      question->paging.parts[i], on_tensors, &question->part[i]);
    }
    if (--question->left == 0) tensors_end(question);
}

static void on_tensors(void *arg, const struct blasd_err *err,
                       const struct blasd_stored_tensor *tensors, int count, const char *cursor) {
    struct part *part = arg;
    struct question *question = part->question;
    struct blasd_stored_tensor *rows = NULL;
    struct blasd_err own;
    if (err == NULL && count > 0) {
        rows = realloc(question->rows, (size_t)(question->count + count) * sizeof *rows);
        if (rows == NULL) {
            no_memory(&own);
            err = &own;
        } else {
            question->rows = rows;
            memcpy(rows + question->count, tensors, (size_t)count * sizeof *rows);
            question->count += count;
        }
    }
    note(question, err);
    if (err == NULL) go_on_at(question, part->number, cursor);
    if (--question->left == 0) tensors_more(question);
}

void blasd_front_queues_tensor_list(struct blasd_front_queues *all,
                                    const struct blasd_principal *principal, int limit,
                                    const char *cursor, blasd_tensors_fn done, void *arg) {
    struct question *question = NULL;
    struct blasd_err err;
    struct paging paging;
    if (all->count == 1 || !read_cursor(all, cursor, &paging)) {
        blasd_front_queue_tensor_list(all->of[0], principal, limit, all->count > 1 ? "~" : cursor,
                                      done, arg);
        return;
    }
    if ((question = question_new(all, arg)) == NULL) {
        no_memory(&err);
        done(arg, &err, NULL, 0, "");
        return;
    }
    question->tensors = done;
    question->paging = paging;
    question->principal = principal;
    question->limit = page_limit(limit);
    tensors_more(question);
}

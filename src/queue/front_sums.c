/* What is asked of all queues: lists, figures, use. A question goes to each, or to those that are
 * there, and is answered once all have answered. Read next: ../wire/stats_sum.h. */
#include "queue/front.h"
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
    struct blasd_buf bytes; /* of texts, records, or tensors: one after the other */
    size_t *lens;           /* owned: of each */
    int count;
    /* of lists: */
    void (*ask)(struct question *question, struct part *part, const struct blasd_list_query *query);
    void (*end)(struct question *question); /* answers, with the cursor or the error */
    struct blasd_buf cursor;
    struct paging paging;
    int rounds;                              /* how often was asked */
    const struct blasd_principal *principal; /* borrowed */
    struct blasd_list_query query;           /* how much the page takes */
    char *op, *label;                        /* owned: its texts, for who asked may be gone */
    /* of each kind: */
    blasd_text_fn text;
    blasd_list_fn list;
    blasd_tensors_fn tensors;
    void *arg;
};

static void question_free(struct question *question) {
    blasd_list_remove(&question->node);
    blasd_buf_release(&question->bytes);
    blasd_buf_release(&question->cursor);
    free(question->lens);
    free(question->op);
    free(question->label);
    free(question);
}

void front_sums_free(struct blasd_front_queues *all) {
    while (!blasd_list_empty(&all->questions))
        question_free(blasd_container_of(all->questions.next, struct question, node));
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
    blasd_buf_init(&question->cursor, BLASD_MIB);
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

/* Keeps a text, a record, or a tensor; false where memory has run out. */
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
        front_no_memory(&err);
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
        front_no_memory(&own);
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

void blasd_front_queues_figures(struct blasd_front_queues *all,
                                const struct blasd_figures_query *query, blasd_text_fn done,
                                void *arg) {
    struct question *question;
    struct blasd_err err;
    if (all->count == 1) {
        blasd_front_queue_figures(all->of[0], query, done, arg);
        return;
    }
    question = question_new(all, arg);
    if (question == NULL) {
        front_no_memory(&err);
        done(arg, &err, NULL, 0);
        return;
    }
    question->text = done;
    question->partly = true;
    for (int i = 0; i < all->count; i++) {
        if (!is_asked(all, i)) continue;
        question->left++;
        blasd_front_queue_figures(all->of[i], query, on_text, &question->part[i]);
    }
    if (--question->left == 0) figures_end(question);
}

/* Lists. */

/* False where the text is no cursor of ours. */
static bool parse_cursor(const struct blasd_front_queues *all, const char *text,
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

/* False: one queue is to be asked, with that cursor, and no other. What is no cursor of ours is
 * none of a queue's, which says so. */
static bool read_cursor(const struct blasd_front_queues *all, const char **text,
                        struct paging *ret) {
    if (all->count == 1) return false;
    if (parse_cursor(all, *text, ret)) return true;
    *text = "~";
    return false;
}

static bool has_ended(const struct paging *paging, int i) {
    return strcmp(paging->parts[i], END) == 0;
}

/* Where the next page goes on; "" at the end. False: no memory. */
static bool write_cursor(struct question *question) {
    const struct paging *paging = &question->paging;
    struct blasd_buf *out = &question->cursor;
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
    int count = question->all->count, left = question->query.limit - question->count;
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

/* Asks for what the page lacks; where that is nothing, or cannot be had, it is done. */
static void page_more(struct question *question) {
    int share[BLASD_QUEUES_MOST];
    question->left = 1;
    if (share_page(question, share))
        for (int i = 0; i < question->all->count; i++) {
            struct blasd_list_query query = question->query;
            if (share[i] == 0) continue;
            query.limit = share[i];
            query.cursor = question->paging.parts[i];
            question->left++;
            question->ask(question, &question->part[i], &query);
        }
    if (--question->left > 0) return;
    if (question->err.code == BLASD_OK && !write_cursor(question)) front_no_memory(&question->err);
    question->end(question);
    question_free(question);
}

/* A queue has answered; `kept`: its rows are. */
static void page_part(struct part *part, const struct blasd_err *err, bool kept,
                      const char *cursor) {
    struct question *question = part->question;
    struct blasd_err own;
    if (err == NULL && !kept) {
        front_no_memory(&own);
        err = &own;
    }
    note(question, err);
    if (err == NULL) go_on_at(question, part->number, cursor);
    if (--question->left == 0) page_more(question);
}

static void copy_text(struct question *question, const char **text, char **copy) {
    struct blasd_err err;
    if (*text == NULL) return;
    *text = *copy = strdup(*text);
    if (*copy != NULL) return;
    front_no_memory(&err);
    note(question, &err);
}

static void page_begin(struct question *question, const struct paging *paging,
                       const struct blasd_principal *principal,
                       const struct blasd_list_query *query) {
    question->paging = *paging;
    question->principal = principal;
    question->query = *query;
    question->query.limit = page_limit(query->limit);
    copy_text(question, &question->query.op, &question->op);
    copy_text(question, &question->query.label, &question->label);
    page_more(question);
}

static void on_list(void *arg, const struct blasd_err *err, const char *cursor,
                    const void *const *records, const size_t *lens, int count) {
    struct part *part = arg;
    bool kept = true;
    for (int i = 0; err == NULL && i < count; i++)
        kept = kept && keep(part->question, records[i], lens[i]);
    page_part(part, err, kept, cursor);
}

static void ask_list(struct question *question, struct part *part,
                     const struct blasd_list_query *query) {
    blasd_front_queue_list(question->all->of[part->number], question->principal, query, on_list,
                           part);
}

static void list_end(struct question *question) {
    const void **at = places(question);
    if (question->err.code == BLASD_OK && at == NULL) front_no_memory(&question->err);
    if (question->err.code != BLASD_OK)
        question->list(question->arg, &question->err, "", NULL, NULL, 0);
    else
        question->list(question->arg, NULL, question->cursor.data, at, question->lens,
                       question->count);
    free(at);
}

void blasd_front_queues_list(struct blasd_front_queues *all,
                             const struct blasd_principal *principal,
                             const struct blasd_list_query *query, blasd_list_fn done, void *arg) {
    struct question *question;
    struct blasd_list_query own = *query;
    struct blasd_err err;
    struct paging paging;
    if (!read_cursor(all, &own.cursor, &paging)) {
        blasd_front_queue_list(all->of[0], principal, &own, done, arg);
        return;
    }
    question = question_new(all, arg);
    if (question == NULL) {
        front_no_memory(&err);
        done(arg, &err, "", NULL, NULL, 0);
        return;
    }
    question->list = done;
    question->ask = ask_list;
    question->end = list_end;
    page_begin(question, &paging, principal, &own);
}

static void on_tensors(void *arg, const struct blasd_err *err,
                       const struct blasd_stored_tensor *tensors, int count, const char *cursor) {
    struct part *part = arg;
    bool kept = true;
    for (int i = 0; err == NULL && i < count; i++)
        kept = kept && keep(part->question, &tensors[i], sizeof tensors[i]);
    page_part(part, err, kept, cursor);
}

static void ask_tensors(struct question *question, struct part *part,
                        const struct blasd_list_query *query) {
    blasd_front_queue_tensor_list(question->all->of[part->number], question->principal,
                                  query->limit, query->cursor, on_tensors, part);
}

static int newest_first(const void *a, const void *b) {
    const struct blasd_stored_tensor *x = a, *y = b;
    if (x->created_us != y->created_us) return x->created_us < y->created_us ? 1 : -1;
    return strcmp(y->id, x->id);
}

static void tensors_end(struct question *question) {
    void *rows = question->bytes.data;
    if (question->count > 0)
        qsort(rows, (size_t)question->count, sizeof(struct blasd_stored_tensor), newest_first);
    if (question->err.code != BLASD_OK)
        question->tensors(question->arg, &question->err, NULL, 0, "");
    else
        question->tensors(question->arg, NULL, rows, question->count, question->cursor.data);
}

void blasd_front_queues_tensor_list(struct blasd_front_queues *all,
                                    const struct blasd_principal *principal, int limit,
                                    const char *cursor, blasd_tensors_fn done, void *arg) {
    struct question *question;
    struct blasd_list_query query = {.limit = limit, .cursor = cursor};
    struct blasd_err err;
    struct paging paging;
    if (!read_cursor(all, &query.cursor, &paging)) {
        blasd_front_queue_tensor_list(all->of[0], principal, limit, query.cursor, done, arg);
        return;
    }
    question = question_new(all, arg);
    if (question == NULL) {
        front_no_memory(&err);
        done(arg, &err, NULL, 0, "");
        return;
    }
    question->tensors = done;
    question->ask = ask_tensors;
    question->end = tensors_end;
    page_begin(question, &paging, principal, &query);
}

/* A timer looks at the disk and sends; what Redis replies changes what is sent next. */
#include "main/redis_care.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define LOOK_NS (100 * BLASD_MS)
#define ASK_NS (1000 * BLASD_MS)
#define TELL_NS (1000 * BLASD_MS) /* while jobs are refused: the figures change */
#define UNTIL "99999999999 "      /* seconds since 1970: until Redis is told that there is room */
#define REWRITE_NS (20000 * BLASD_MS) /* between two rewrites for more room */
#define MEND_NS (1000 * BLASD_MS)     /* between two attempts to get a whole file */

static bool refuses(const struct redis_care *care) {
    return care->disk.is_short || care->torn;
}

/* Once, and when it is over. */
static void say(struct redis_care *care) {
    const struct aof_disk *disk = &care->disk;
    if (care->said == refuses(care)) return;
    care->said = !care->said;
    if (care->said)
        blasd_log(BLASD_LOG_WARN,
                  "only %llu MiB are free on the disk of %s: no job is accepted below %llu MiB "
                  "(limit disk_reserve_bytes); queued jobs go on",
                  (unsigned long long)(disk->free_bytes / BLASD_MIB), disk->dir,
                  (unsigned long long)(disk->reserve / BLASD_MIB));
    else
        blasd_log(BLASD_LOG_INFO, "there is space again on the disk of %s: jobs are taken",
                  disk->dir);
}

static int send_words(struct redis_care *care, redisCallbackFn *fn, int count,
                      const char *const *words) {
    size_t lens[4];
    for (int i = 0; i < count; i++) lens[i] = strlen(words[i]);
    return blasd_async_link_send_args(&care->link, count, words, lens, fn, care);
}

static void handle_told(redisAsyncContext *ac, void *reply, void *arg) {
    struct redis_care *care = arg;
    (void)ac;
    if (reply == NULL) return;
    care->on_alive(care);
    if (care->ready) return;
    care->ready = true;
    blasd_async_link_stands(&care->link);
    care->on_ready(care);
}

/* Has the queue refuse jobs, or take them. */
static void tell(struct redis_care *care, int64_t now) {
    const struct aof_disk *disk = &care->disk;
    char key[BLASD_LINK_KEY_MAX], why[200];
    bool refused = refuses(care);
    if (care->told && refused == care->refuses && (!refused || now - care->told_ns < TELL_NS))
        return;
    blasd_link_key(key, care->queue, ":state");
    if (disk->is_short)
        snprintf(why, sizeof why,
                 UNTIL "%llu MiB are free on the disk of the queue, which needs %llu MiB (limit "
                       "disk_reserve_bytes)",
                 (unsigned long long)(disk->free_bytes / BLASD_MIB),
                 (unsigned long long)(disk->reserve / BLASD_MIB));
    else
        snprintf(why, sizeof why,
                 UNTIL "the disk of the queue was full, and its file is not whole yet");
    if (send_words(care, handle_told, refused ? 4 : 3,
                   (const char *const[]){refused ? "HSET" : "HDEL", key, "refused", why}) != 0)
        return;
    care->told = true;
    care->refuses = refused;
    care->told_ns = now;
}

static bool has(const redisReply *info, const char *field) {
    return strstr(info->str, field) != NULL;
}

static void handle_info(redisAsyncContext *ac, void *reply, void *arg) {
    struct redis_care *care = arg;
    const redisReply *info = reply;
    (void)ac;
    if (info == NULL) return;
    care->on_alive(care);
    if (info->type != REDIS_REPLY_STRING) return;
    care->rewriting =
        has(info, "aof_rewrite_in_progress:1") || has(info, "aof_rewrite_scheduled:1");
    if (!care->asked || care->rewriting) return;
    care->torn = !has(info, "aof_last_bgrewrite_status:ok");
    care->asked = false;
}

/* Only what Redis says after this reply is of the rewrite that was asked for. */
static void handle_rewrite(redisAsyncContext *ac, void *reply, void *arg) {
    struct redis_care *care = arg;
    const redisReply *r = reply;
    (void)ac;
    if (r != NULL && r->type != REDIS_REPLY_ERROR) care->asked = care->torn;
}

/* Asks for a rewrite where the file is not whole, or where that may bring room. */
static void ask_rewrite(struct redis_care *care, int64_t now) {
    bool mends = care->torn && !care->disk.is_short && !care->disk.is_full;
    bool helps = care->disk.is_short && care->disk.appended >= care->disk.reserve / 4;
    if (care->rewriting || care->asked || !(mends || helps)) return;
    if (care->rewrite_ns != 0 && now - care->rewrite_ns < (mends ? MEND_NS : REWRITE_NS)) return;
    if (send_words(care, handle_rewrite, 1, (const char *const[]){"BGREWRITEAOF"}) == 0)
        care->rewrite_ns = now;
}

static void look(struct blasd_timer *timer) {
    struct redis_care *care = blasd_container_of(timer, struct redis_care, timer);
    int64_t now = blasd_clock_ns();
    aof_disk_look(&care->disk);
    if (care->disk.is_full) {
        care->torn = true;
        care->asked = false;
    }
    say(care);
    if (care->link.state == BLASD_LINK_UP) {
        tell(care, now);
        if (now - care->asked_ns >= ASK_NS &&
            send_words(care, handle_info, 2, (const char *const[]){"INFO", "persistence"}) == 0)
            care->asked_ns = now;
        ask_rewrite(care, now);
        blasd_async_link_flush(&care->link);
    }
    blasd_loop_timer_set(care->link.loop, timer, now + LOOK_NS);
}

static void on_up(struct blasd_async_link *link) {
    struct redis_care *care = link->owner;
    blasd_loop_timer_set(link->loop, &care->timer, blasd_clock_ns());
}

static void on_down(struct blasd_async_link *link, const char *why) {
    struct redis_care *care = link->owner;
    (void)why;
    care->told = false;
    care->asked_ns = 0;
}

int redis_care_start(struct redis_care *care, struct blasd_loop *loop, const char *socket,
                     const char *user, const char *password, struct blasd_err *err) {
    char url[512];
    int code;
    snprintf(url, sizeof url, "unix://%s:%s@%s", user, password, socket);
    code = blasd_link_parse(url, care->queue, &care->address, err);
    if (code != 0) return code;
    care->link = (struct blasd_async_link){
        .loop = loop, .address = &care->address, .on_up = on_up, .on_down = on_down, .owner = care};
    care->timer.fire = look;
    care->started = true;
    blasd_async_link_open(&care->link);
    blasd_loop_timer_set(loop, &care->timer, blasd_clock_ns());
    return 0;
}

void redis_care_ended(struct redis_care *care) {
    aof_disk_forget(&care->disk);
    care->told = care->ready = care->torn = false;
    care->rewriting = care->asked = false;
    care->rewrite_ns = 0;
}

void redis_care_stop(struct redis_care *care) {
    if (!care->started) return;
    blasd_loop_timer_clear(care->link.loop, &care->timer);
    blasd_async_link_close(&care->link);
    care->started = false;
}

/* For tests of batch entries: batch entries to submit, who is told, and an audit of all that the
 * queue keeps.
 */
#ifndef TESTS_BATCH_ENTRY_FIXTURE_H
#define TESTS_BATCH_ENTRY_FIXTURE_H

#include "redis_fixture.h"

#include "queue/record_frame.h"

#define BATCH_ENTRY_MOST 64

/* A batch entry: its jobs' frames are "frame of ID". */
struct entry {
    int jobs;
    char name[BLASD_ID_ENTRY + 1];
    char id[BATCH_ENTRY_MOST][BLASD_ID_LEN + 1];
};

static inline void batch_entry_make(struct entry *entry, enum blasd_id_kind kind, int jobs) {
    entry->jobs = jobs;
    id_make(entry->id[0], kind, 0);
    for (int i = 1; i < jobs; i++) {
        memcpy(entry->id[i], entry->id[0], BLASD_ID_LEN + 1);
        blasd_random_hex(entry->id[i] + BLASD_ID_ENTRY, BLASD_ID_LEN - BLASD_ID_ENTRY);
    }
    memcpy(entry->name, entry->id[0], BLASD_ID_ENTRY);
    entry->name[BLASD_ID_ENTRY] = '\0';
}

/* Record frames of the ids, each with `text` before its id. Release them. */
static inline struct blasd_buf record_frames_of(const char (*ids)[BLASD_ID_LEN + 1], int count,
                                                const char *text) {
    struct blasd_buf out;
    char body[128];
    blasd_buf_init(&out, BLASD_MIB);
    for (int i = 0; i < count; i++) {
        int len = snprintf(body, sizeof body, "%s%s", text, ids[i]);
        assert_int_equal(blasd_record_frame_add(&out, ids[i], body, (size_t)len), 0);
    }
    return out;
}

/* A call in the making whose words may hold any byte; they are borrowed. */
struct words {
    int count;
    const char *argv[600];
    size_t lens[600];
};

static inline void word_add(struct words *words, const char *bytes, size_t len) {
    assert_true(words->count < 600);
    words->argv[words->count] = bytes;
    words->lens[words->count++] = len;
}

static inline void word(struct words *words, const char *text) {
    word_add(words, text, strlen(text));
}

static inline void words_begin(struct words *words, struct bed *bed, const char *function) {
    words->count = 0;
    word(words, "FCALL");
    word(words, function);
    word(words, "1");
    word(words, bed->tag);
    word(words, bed->link.text);
}

static inline redisReply *words_call(struct bed *bed, struct words *words) {
    redisReply *reply = redisCommandArgv(bed->raw, words->count, words->argv, words->lens);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR) fail_msg("%s: %s", words->argv[1], reply->str);
    return reply;
}

/* In the place of OPTIONS: its reply was lost, and it is sent again. */
#define AGAIN "again"

/* What submit replies for a batch entry of these record frames, as a text: its digits, of an
 * integer one.
 */
static inline const char *submit_record_frames(struct bed *bed, const char *name, int jobs,
                                               const struct blasd_buf *record_frames,
                                               const char *si, int cost, const char *options,
                                               const char *note) {
    static char digits[BATCH_ENTRY_MOST + 1];
    char cost_text[32];
    struct words words;
    snprintf(cost_text, sizeof cost_text, "%d %d", cost, jobs);
    bool again = strcmp(options, AGAIN) == 0;
    words_begin(&words, bed, BLASD_QUEUE_FN("submit"));
    word(&words, "test");
    word(&words, submit_seq(again));
    word(&words, name);
    word_add(&words, record_frames->len ? record_frames->data : "", record_frames->len);
    word(&words, si);
    word(&words, cost_text);
    word(&words, again ? "" : options);
    word(&words, note);
    redisReply *reply = words_call(bed, &words);
    assert_int_equal(reply->elements, 4);
    const redisReply *r = reply->element[3];
    if (r->type == REDIS_REPLY_INTEGER)
        snprintf(digits, sizeof digits, "%lld", r->integer);
    else
        snprintf(digits, sizeof digits, "%s", r->str);
    drop(reply);
    return digits;
}

static inline const char *submit_batch_entry_as(struct bed *bed, const struct entry *entry,
                                                const char *si, int cost, const char *options,
                                                const char *note) {
    struct blasd_buf record_frames = record_frames_of(entry->id, entry->jobs, "frame of ");
    const char *r = submit_record_frames(bed, entry->name, entry->jobs, &record_frames, si, cost,
                                         options, note);
    blasd_buf_release(&record_frames);
    return r;
}

/* Submits a new batch entry of class any and priority normal, of 100 bytes a job, for `channel`. */
static inline void submit_batch_entry(struct bed *bed, struct entry *entry, enum blasd_id_kind kind,
                                      int jobs, const char *channel) {
    char note[128];
    snprintf(note, sizeof note, "\t%s\tmatmul\t%s", channel, tenant);
    batch_entry_make(entry, kind, jobs);
    assert_string_equal(submit_batch_entry_as(bed, entry, "2", 100, "", note), "0");
}

/* Ends jobs with "record of ID"; returns the digits. `segments`: of each one's outputs, or NULL. */
static inline const char *finish_ids(struct blasd_worker_queue *worker, const char *const *ids,
                                     int count, const char *const *segments) {
    static char digits[513];
    static struct blasd_completion completions[512];
    static char records[512][64];
    struct blasd_err err;
    bool lost;
    for (int i = 0; i < count; i++) {
        snprintf(records[i], sizeof records[i], "record of %.41s", ids[i]);
        completions[i] = (struct blasd_completion){
            .id = ids[i], .record = records[i], .record_len = strlen(records[i])};
        if (segments == NULL || segments[i] == NULL) continue;
        completions[i].out_bytes = 1000;
        snprintf(completions[i].slice.segment, sizeof completions[i].slice.segment, "%s",
                 segments[i]);
    }
    if (blasd_worker_queue_finish(worker, completions, count, &lost, &err) < 0)
        fail_msg("%s", err.detail);
    assert_false(lost);
    for (int i = 0; i < count; i++) digits[i] = completions[i].accepted ? '1' : '0';
    digits[count] = '\0';
    return digits;
}

/* Begins the jobs; Redis has heard of it then, as it need not have after begin. */
static inline void begun(struct blasd_worker_queue *worker, const struct blasd_claim *claims,
                         int count) {
    struct blasd_err err;
    bool lost;
    begin(worker, claims, count);
    assert_int_equal(blasd_worker_queue_renew(worker, INFO_CPU, &lost, &err), 0);
    assert_false(lost);
}

static inline const char *finish_claims(struct blasd_worker_queue *worker,
                                        const struct blasd_claim *claims, int count) {
    const char *ids[512];
    for (int i = 0; i < count; i++) ids[i] = claims[i].id;
    return finish_ids(worker, ids, count, NULL);
}

/* A whole turn that ends jobs, by hand, with the number after the last one, or the same. */
static inline const char *finish_raw(struct bed *bed, struct blasd_worker_queue *worker, bool again,
                                     const char *name, const struct blasd_buf *record_frames,
                                     const char *outputs) {
    static char digits[BATCH_ENTRY_MOST + 2];
    if (again) worker->turns.seq--;
    redisReply *reply =
        turn_lost(bed, worker, 0, name, record_frames->data, record_frames->len, outputs);
    snprintf(digits, sizeof digits, "%s", reply->element[1]->str);
    drop(reply);
    worker->turns.unsure = false; /* its reply is here */
    return digits;
}

static inline void expect_record(struct bed *bed, const char *id) {
    char record[64];
    snprintf(record, sizeof record, "record of %.41s", id);
    assert_string_equal(record_line(bed, id, 0), record);
}

static inline void expect_claimed(const struct blasd_claim *claim, const char *id) {
    char frame[64];
    int len = snprintf(frame, sizeof frame, "frame of %s", id);
    assert_string_equal(claim->id, id);
    assert_int_equal(claim->frame_len, len);
    assert_memory_equal(claim->frame, frame, (size_t)len);
    assert_false(claim->stored);
    assert_true(claim->submitted_us > 0 && claim->claimed_us >= claim->submitted_us);
}

static inline long long ask(struct bed *bed, const char *command, const char *key) {
    redisReply *reply = redisCommand(bed->raw, "%s %s:%s", command, bed->tag, key);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    long long n = reply->integer;
    drop(reply);
    return n;
}

/* Has a new tensor kept; `options` becomes what a job says that holds it, "t=ID.in". */
static inline void put_tensor(struct bed *bed, const char *whose, char options[BLASD_ID_LEN + 8]) {
    char id[BLASD_ID_LEN + 1];
    id_make(id, BLASD_ID_TENSOR, 0);
    redisReply *reply =
        fcall(bed, "tensor", "put", whose, "0", "3600", id, "32", "float64 0 4", NULL);
    assert_int_equal(reply->element[0]->integer, 0);
    drop(reply);
    snprintf(options, BLASD_ID_LEN + 8, "t=%s.in", id);
}

/* A listener on a channel. */
static inline redisContext *listen_to(struct bed *bed, const char *channel) {
    redisContext *old = bed->raw;
    bed_connect(bed);
    redisContext *c = bed->raw;
    bed->raw = old;
    redisReply *reply = redisCommand(c, "SUBSCRIBE %s", channel);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    drop(reply);
    return c;
}

/* Reads what the channel has been told until now: told(arg, id, record, len) for each record frame.
 */
static inline void hear(struct bed *bed, redisContext *listener, const char *channel,
                        void (*told)(void *arg, const char *id, const char *record, size_t len),
                        void *arg) {
    drop(redisCommand(bed->raw, "PUBLISH %s end", channel));
    for (;;) {
        void *got = NULL;
        assert_int_equal(redisGetReply(listener, &got), REDIS_OK);
        redisReply *reply = got;
        assert_int_equal(reply->elements, 3);
        const char *at = reply->element[2]->str, *end = at + reply->element[2]->len;
        bool last = end - at == 3;
        while (!last && at < end) {
            assert_true(end - at >= (ptrdiff_t)BLASD_RECORD_FRAME_HEAD);
            size_t len = blasd_record_frame_len(at);
            assert_true(len <= (size_t)(end - at) - BLASD_RECORD_FRAME_HEAD);
            told(arg, at + 4, at + BLASD_RECORD_FRAME_HEAD, len);
            at += BLASD_RECORD_FRAME_HEAD + len;
        }
        drop(reply);
        if (last) return;
    }
}

/* Whether all that the queue counts is what is there, and each pending job is named in one place:
 * a list, or what a worker holds. */
static inline void audit(struct bed *bed) {
    static const char script[] = STATE_NUMBERS
        "local q, jobs, bytes, at, call = KEYS[1], 0, 0, {}, redis.call\n"
        "local pending, metas = call('HGETALL', q .. ':pending'), {}\n"
        "local frames, count_of = {}, 0\n"
        "for i = 1, #pending, 2 do\n"
        "  if pending[i]:sub(1, 1) == '=' then\n"
        "    frames[pending[i]:sub(2)], count_of = pending[i + 1], count_of + 1\n"
        "  else metas[pending[i]] = pending[i + 1] end\n"
        "end\n"
        "local function many(meta) return tonumber(meta:match('^[^\\t]* x(%d+)\\t') or 1) end\n"
        "local function ids(record_frames)\n"
        "  local list, from = {}, 1\n"
        "  while from <= #record_frames do\n"
        "    list[#list + 1] = record_frames:sub(from + 4, from + 44)\n"
        "    from = from + 45 + struct.unpack('<I4', record_frames, from)\n"
        "  end\n"
        "  return list\n"
        "end\n"
        "for name, meta in pairs(metas) do\n"
        "  local n, frame = many(meta), frames[name]\n"
        "  if not frame then return name .. ' has no frame' end\n"
        "  if #name == 29 then\n"
        "    local list = ids(frame)\n"
        "    if #list ~= n then return name .. ' has ' .. #list .. ' jobs of ' .. n end\n"
        "    for _, id in ipairs(list) do\n"
        "      if metas[id] then return id .. ' is in a batch entry, and alone' end\n"
        "    end\n"
        "  elseif n ~= 1 then return name .. ' is many' end\n"
        "  jobs, bytes = jobs + n, bytes + n * tonumber(meta:match('^%w %d+ (%d+)'))\n"
        "end\n"
        "if count_of ~= #pending / 4 then return 'too many frames' end\n"
        "local function place(name, where)\n"
        "  local sum = 0\n"
        "  local names = metas[name] and {name} or {}\n"
        "  if not metas[name] and #name == 29 then\n"
        "    for id in (call('HGET', q .. ':opened', name) or ''):gmatch('%S+') do\n"
        "      if metas[id] then names[#names + 1] = id end\n"
        "    end\n"
        "  end\n"
        "  for _, one in ipairs(names) do\n"
        "    if at[one] then return nil, one .. ': ' .. at[one] .. ', ' .. where end\n"
        "    at[one], sum = where, sum + many(metas[one])\n"
        "  end\n"
        "  return sum\n"
        "end\n"
        "local function count(field)\n"
        "  if not field:find(' ') then return state_numbers(q .. ':state')[field] end\n"
        "  return tonumber(call('HGET', q .. ':lines', field) or 0)\n"
        "end\n"
        "local lines, waits = {}, {0, 0, 0}\n"
        "local fields = call('HGETALL', q .. ':lines')\n"
        "for i = 1, #fields, 2 do\n"
        "  if fields[i]:find('^%w ') then lines[fields[i]] = tonumber(fields[i + 1]) end\n"
        "end\n"
        "for at = 0, 26 do\n"
        "    local head = q .. ':wait:' .. ({'any', 'cpu', 'cuda'})[math.floor(at % 9 / 3) + 1] .. "
        "':' ..\n"
        "                 ({'high', 'normal', 'low'})[at % 3 + 1] .. ':' ..\n"
        "                 ({'', 'brief:', 'long:'})[math.floor(at / 9) + 1]\n"
        "    local si = ('123456789abcdefghijklmnopqr'):sub(at + 1, at + 1)\n"
        "    for _, list in ipairs(call('KEYS', head .. '*')) do\n"
        "     local tenant, sum = list:sub(#head + 1), 0\n"
        "     if not tenant:find(':') then\n"
        "      for _, name in ipairs(call('LRANGE', list, 0, -1)) do\n"
        "        local n, wrong = place(name, list)\n"
        "        local meta = metas[name] or ''\n"
        "        if wrong then return wrong end\n"
        "        if n > 0 and #name == 41 and (meta:sub(1, 1) ~= si or\n"
        "           meta:match('^[^\t]*\t[^\t]*\t[^\t]*\t([^\t]*)') ~= tenant) then\n"
        "          return name .. ' is in the wrong list' end\n"
        "        sum = sum + n\n"
        "      end\n"
        "      local line = si .. ' ' .. tenant\n"
        "      local class = math.floor(at % 9 / 3) + 1\n"
        "      waits[class] = waits[class] + sum\n"
        "      if sum ~= count(line) then\n"
        "        return list .. ' has ' .. sum .. ' jobs, not ' .. count(line) end\n"
        "      lines[line] = nil\n"
        "     end\n"
        "    end\n"
        "end\n"
        "for line, n in pairs(lines) do\n"
        "  if n ~= 0 then return line .. ' is counted, and has no list' end\n"
        "end\n"
        "for class = 1, 3 do if waits[class] ~= count('waits' .. class) then\n"
        "  return waits[class] .. ' wait of class ' .. class .. ', not ' .. count('waits' .. "
        "class)\n"
        "end end\n"
        "local named, used = {}, {}\n"
        "for _, key in ipairs(call('KEYS', q .. ':names:*')) do\n"
        "  local tenant = key:sub(#q + 8)\n"
        "  for _, name in ipairs(call('SMEMBERS', key)) do\n"
        "    local meta = metas[name]\n"
        "    if not meta then return name .. ' is named, and not pending' end\n"
        "    if meta:match('^[^\t]*\t[^\t]*\t[^\t]*\t([^\t]*)') ~= tenant then\n"
        "      return name .. ' is named by another tenant' end\n"
        "    named[name] = true\n"
        "    if meta:find('^[^\t]* w%d') then\n"
        "      used[tenant] = (used[tenant] or 0) + many(meta) end\n"
        "  end\n"
        "end\n"
        "for name, meta in pairs(metas) do\n"
        "  if not named[name] and meta:match('^[^\t]*\t[^\t]*\t[^\t]*\t([^\t]*)') ~= 'anonymous' "
        "then return name .. ' is not named' end\n"
        "end\n"
        "local metered = call('HGETALL', q .. ':used')\n"
        "for i = 1, #metered, 2 do\n"
        "  local tenant = metered[i]:match('^jobs (.*)$')\n"
        "  if tenant then\n"
        "    if used[tenant] ~= tonumber(metered[i + 1]) then\n"
        "      return tenant .. ' has ' .. (used[tenant] or 0) .. ' jobs, not ' .. metered[i + 1] "
        "end\n"
        "    used[tenant] = nil\n"
        "  end\n"
        "end\n"
        "if next(used) then return next(used) .. ' is not metered' end\n"
        "for _, worker in ipairs(call('HKEYS', q .. ':workers')) do\n"
        "  local seen = {}\n"
        "  for _, name in ipairs(call('HKEYS', q .. ':claims:' .. worker)) do\n"
        "    local n, wrong = 0, nil\n"
        "    if not seen[name] then n, wrong = place(name, worker) end\n"
        "    if wrong then return wrong end\n"
        "    seen[name] = true\n"
        "  end\n"
        "end\n"
        "for name in pairs(metas) do if not at[name] then return name .. ' is nowhere' end end\n"
        "if jobs ~= count('jobs') or bytes ~= count('bytes') then\n"
        "  return jobs .. ' jobs of ' .. bytes .. ' bytes, not ' .. count('jobs') .. ' of ' ..\n"
        "         count('bytes') end\n"
        "local held = {}\n"
        "for _, meta in pairs(metas) do\n"
        "  local uses = meta:match('^[^\t]*\t[^\t]*\t[^\t]*\t[^\t]*\t([^\t ]*)') or ''\n"
        "  for blob in uses:gmatch('[^,]+') do held[blob] = (held[blob] or 0) + 1 end\n"
        "end\n"
        "local function hold(seg, n) if seg then held[seg] = (held[seg] or 0) + n end end\n"
        "for _, meta in pairs(metas) do\n"
        "  hold(meta:match('^%w %d+ %d+ %d %d+ (%x+)'), many(meta))\n"
        "end\n"
        "local refs = call('HGETALL', q .. ':refs')\n"
        "for i = 1, #refs, 2 do\n"
        "  local name, n = refs[i], tonumber(refs[i + 1])\n"
        "  if n < 1 or n ~= held[name] then\n"
        "    return name .. ' has ' .. n .. ' references, not ' .. (held[name] or 0) end\n"
        "  held[name] = nil\n"
        "end\n"
        "if next(held) then return next(held) .. ' is held, and has no references' end\n"
        "return 'ok'\n";
    redisReply *reply = redisCommand(bed->raw, "EVAL %s 1 %s", script, bed->tag);
    assert_non_null(reply);
    if (!reply->str || strcmp(reply->str, "ok") != 0) fail_msg("audit: %s", reply->str);
    drop(reply);
}

/* Nothing is pending and nothing is left of what was. */
static inline void expect_empty(struct bed *bed) {
    static const char *const gone[] = {"pending", "frames", "deadlines",       "opened",
                                       "used",    "shares", "names:anonymous", "lines"};
    redisReply *reply;
    audit(bed);
    for (int i = 0; i < 3; i++) drop(fcall(bed, "tick", NULL));
    reply = redisCommand(bed->raw, "KEYS %s:wait:*", bed->tag);
    assert_int_equal(reply->elements, 0);
    drop(reply);
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (ask(bed, "EXISTS", gone[i]) != 0) fail_msg("%s is there", gone[i]);
    static const char *const zero[] = {"jobs", "bytes", "results", "waits1", "waits2", "waits3"};
    for (size_t i = 0; i < sizeof zero / sizeof *zero; i++)
        assert_int_equal(counted(bed, zero[i]), 0);
}

#endif

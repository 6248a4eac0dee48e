-- Jobs and batch entries that are submitted: repeated ones are found by their Idempotency-Key, limits are
-- kept, and demand that waits is answered at once. Read next: listing.lua.

local submit
do

-- Why no job is to be taken, or nil: "UNTIL WHY", UNTIL in seconds on the clock as it is.
local function refused_now()
    local till, why = match(State.field(4) or '', '^(%d+) (.*)$')
    return till and now - S.offset < tonumber(till) * 1000000 and why or nil
end

-- Whether two fingerprints are of one request. One of 16 digits is the first half of one of 32, as
-- the release before this one wrote it.
local function same_fingerprint(a, b)
    return a == b or #a == 16 and #b == 32 and a == sub(b, 1, 16) or
           #b == 16 and #a == 32 and b == sub(a, 1, 16)
end

-- Where a submission stands whose Idempotency-Key is `key`: nil to go on, else its reply.
local function repeated(key, fingerprint, channel, tenant)
    local text = call('GET', key)
    if not text then return nil end
    local id, recorded_fingerprint = match(text, '^(%S+) (%S+)$')
    local meta = metas_alone({id})[1]
    local record = not meta and Kept.find(id, tenant)
    if not meta and not record then return 14 end -- its record is gone: it has run
    if not same_fingerprint(recorded_fingerprint, fingerprint) then return 2 end
    if channel == '' then return {id, ''} end
    if meta then
        meta_watch(id, meta, channel)
        return {id, ''}
    end
    return {id, record}
end

-- What a call of submit has taken: entries as claim_take has them, of which `written` are written;
-- `jobs` and their bytes, `sum`, are pending with them; `counted` of the `like` are new; `si` is that of all
-- entries, if one is; `kept` are the bytes of results that are kept for their time, and those that pending jobs
-- will have.
local function intake_new()
    local jobs, sum, results = S.jobs, S.bytes, S.results
    if jobs < 0 then jobs = 0 end
    if sum < 0 then sum = 0 end
    if results < 0 then results = 0 end
    return {entries = {nil}, written = 0, count = {0, 0, 0}, like = false, meta = false, looked = false,
            counted = 0, jobs = jobs, sum = sum, results = results, kept = S.kept_a + results}
end

local function intake_add(t, name, meta, frame, jobs)
    local like, entries = t.like, t.entries
    local class, seg, n = SI.class[like.si], like.seg, #entries + 1
    entries[n] = {name = name, meta = meta, frame = frame, like = like, jobs = jobs}
    if n == 1 then t.si = like.si elseif t.si ~= like.si then t.si = nil end
    t.count[class] = t.count[class] + 1
    if seg ~= '' then
        local segs = t.segs or {}
        t.segs, segs[seg] = segs, (segs[seg] or 0) + jobs
    end
    if S.watched > now then Record.events.queued(name, meta, frame) end
end

local function intake_write(t)
    local entries = t.entries
    if #entries == t.written then return end
    local fields, of = {nil, nil, nil, nil}, nil
    for i = t.written + 1, #entries do
        local e, n = entries[i], #fields
        fields[n + 1], fields[n + 2], fields[n + 3], fields[n + 4] = e.name, e.meta, frame_field(e.name), e.frame
        local tenant = e.like.tenant
        if tenant ~= NOBODY then
            of = of or {}
            local names = of[tenant] or {}
            of[tenant], names[#names + 1] = names, e.name
        end
    end
    call_many('HSET', K.pending, fields)
    if of then for tenant, names in pairs(of) do call_many('SADD', K.names_of .. tenant, names) end end
    S.jobs, S.bytes, S.results = t.jobs, t.sum, t.results
    if t.used then
        for tenant, used in pairs(t.used) do
            meter(tenant, used.new_jobs, used.new_bytes, used.new_results)
            used.new_jobs, used.new_bytes, used.new_results = 0, 0, 0
        end
    end
    t.written = #entries
end

-- Whether there were any to line up.
local function line_up(t)
    local lists
    for _, e in ipairs(t.entries) do
        if not e.given then
            lists = lists or {}
            local line = e.like.line
            local list = lists[line] or {nil, jobs = 0}
            lists[line], list[#list + 1], list.jobs = list, e.name, list.jobs + e.jobs
        end
    end
    if not lists then return false end
    for line, list in pairs(lists) do
        call_many('RPUSH', line_key(line), list)
        tally(line, list.jobs)
    end
    return true
end

-- Gives the jobs to idle workers, for whom what waits is nothing, and lines the others up: batch entries larger
-- than what is asked for, as a rule.
local function intake_give(t)
    intake_write(t)
    if #t.entries == 0 then return end
    serve(t.count, t.entries, t.si)
    if line_up(t) then serve(t.count) end
end

local DEADLINE_MOST = 1e12 -- ms: what is later is as good as none

-- What the OPTIONS of a job say: nil where it is not to be queued, with its reply; else the time of
-- its deadline as a text, whether its inputs are a blob, what it refers to, its
-- Idempotency-Key with the value, where its end is told, what of it is put, and what becomes tensors, {most,
-- bytes, tensors}.
local function submit_options(id, options, like)
    options = ' ' .. options
    local head, fingerprint, key = match(options, '^(.-) k=([^:]*):(.*)$')
    head = head or options
    local ms, deadline = min(tonumber(match(head, ' d=(%d+)') or 0), DEADLINE_MOST), '0'
    if ms > 0 then deadline = whole(now + ms * 1000) end
    if find(head, ' B=1') and call('HEXISTS', K.blobs, id .. '.in') == 0 then return nil, 3 end
    local blob, made = find(head, ' [bB]=1') and '1' or '0', {match(head, ' m=(%d+):(%d+):(%d+)')}
    local r = key and repeated(K.idem_of .. like.tenant .. ':' .. key, fingerprint, like.channels,
                               like.tenant)
    if r then return nil, r end
    if find(head, ' o=1', 1, true) then return nil, 13 end
    local holds = match(head, ' t=(%S+)')
    if holds and not Tensor.there(holds, like.tenant, Kept.has_out) then return nil, 9 end
    local room, url = match(head, ' n=(%d+):(%w+://[^/?%s]%S*)')
    if find(head, ' n=', 1, true) and not count_of(room) then return nil, 4 end
    if url and not Hook.fits(like.tenant, url, tonumber(room)) then return nil, 10 end
    if made[1] then
        for i = 1, 3 do made[i] = tonumber(made[i]) end
        local code = Tensor.make_room(like.tenant, unpack(made))
        if code > 0 then return nil, code <= 2 and 16 or 15 end
    end
    return deadline, blob, holds, key, key and id .. ' ' .. fingerprint, url, made[1] and made
end

-- How much of the limit of results there is for that job: of those that somebody waits for few are kept for
-- their time, so they have a quarter more.
local function results_limit(name) return L.record_bytes * (byte(name) == 115 and 1.25 or 1) end

-- Whether results leave no room for those of `n` jobs more. One is let in where there are none.
local function results_full(t, name, n)
    return t.kept > 0 and t.kept + n * t.like.result > results_limit(name)
end

-- What a tenant with limits has pending, with what this call has taken, and its records' bytes.
local function submit_used(t, tenant)
    t.used = t.used or {}
    local used = t.used[tenant]
    if used then return used end
    local jobs, bytes, results = unpack(call('HMGET', K.used, 'jobs ' .. tenant, 'bytes ' .. tenant,
                                             'results ' .. tenant))
    used = {jobs = tonumber(jobs or 0), bytes = tonumber(bytes or 0), new_jobs = 0, new_bytes = 0,
            stored = Kept.of(tenant) + tonumber(results or 0), new_results = 0}
    t.used[tenant] = used
    return used
end

-- Counts jobs in, if their tenant may have them: 0, or which of its limits says no.
local function submit_meter(t, name, n)
    local like = t.like
    if not like.metered then return 0 end
    local used, cost, results = submit_used(t, like.tenant), n * like.cost, n * like.result
    local function over(most, is) return most > 0 and is > most end
    if over(like.jobs_most, used.jobs + n) then return 6 end
    if over(like.bytes_most, used.bytes + cost) then return 7 end
    if like.stored_most > 0 and used.stored > 0 and
       share_lacks(results_limit(name), t.kept, used.stored, results, like.stored_most) > 0 then
        return 8
    end
    used.jobs, used.bytes, used.stored = used.jobs + n, used.bytes + cost, used.stored + results
    used.new_jobs, used.new_bytes = used.new_jobs + n, used.new_bytes + cost
    used.new_results = used.new_results + results
    return 0
end

-- Counts jobs in, if there is room for all: 0, or why not.
local function submit_fits(t, name, n)
    if results_full(t, name, n) then return 5 end
    local cost = n * t.like.cost
    local jobs, bytes = t.jobs + n, t.sum + cost
    if (jobs > L.queue_jobs or bytes > L.queue_bytes) and not t.looked then
        t.looked = true -- once a call
        intake_write(t)
        expire_due()
        t.used = nil
        local left = intake_new()
        t.jobs, t.sum, t.results, t.kept = left.jobs, left.sum, left.results, left.kept
        jobs, bytes = t.jobs + n, t.sum + cost
    end
    if jobs > L.queue_jobs or bytes > L.queue_bytes then return 1 end
    local over = submit_meter(t, name, n)
    if over > 0 then return over end
    local results = n * t.like.result
    t.jobs, t.sum, t.counted = jobs, bytes, t.counted + n
    t.results, t.kept = t.results + results, t.kept + results
    return 0
end

-- Jobs that follow are like that.
local function submit_like(t, like)
    if t.like == like then return end
    if t.counted > 0 then State.count(t.like.counted, t.counted) end
    t.like, t.meta, t.counted = like, false, 0
end

local function submit_one(t, id, frame, options)
    local meta, deadline, blob, holds, key, value, url, made = t.meta, '0', '0'
    local uses
    if options ~= '' then
        intake_write(t) -- earlier jobs of this call must be seen
        deadline, blob, holds, key, value, url, made = submit_options(id, options, t.like)
        if not deadline then return blob end
        meta = false
        if holds or made or url then
            uses = (holds or '') .. (made and ' ' .. whole(made[2]) .. ' ' .. whole(made[3]) or '') .. (url and ' ' .. url or '')
        end
    end
    local full = submit_fits(t, id, 1)
    if full > 0 then return full end
    if not meta then
        meta = meta_of(t.like, blob, deadline, nil, key, uses)
        if options == '' then t.meta = meta end
    end
    intake_add(t, id, meta, frame, 1)
    if options == '' then return 0 end
    if find(options, 'B=1', 1, true) then call('DEL', K.hold_of .. id .. '.in') end -- the job has it now
    if deadline ~= '0' then call('ZADD', K.deadlines, deadline, id) end
    if holds then Tensor.hold(holds, t.like.tenant) end
    if url then Hook.promise(t.like.tenant, url) end
    if made then Tensor.count(t.like.tenant, made[2], made[3]) end
    if key then call('SET', K.idem_of .. t.like.tenant .. ':' .. key, value) end
    return 0
end

local function submit_batch_entry(t, batch_entry, record_frames, options)
    local jobs, holds = t.like.packed, match(options, '^t=(%S+)$')
    if options ~= '' and not holds then return 4 end
    if holds and not Tensor.there(holds, t.like.tenant, Kept.has_out) then return 9 end
    if submit_fits(t, batch_entry, jobs) == 0 then
        intake_add(t, batch_entry, meta_of(t.like, '0', '0', jobs, nil, holds), record_frames, jobs)
        if holds then Tensor.hold(holds, t.like.tenant) end
        return 0
    end
    local digits = {}
    t.meta = false
    each_record_frame(record_frames, function(id, from, to)
        digits[#digits + 1] = submit_one(t, id, sub(record_frames, from, to), options)
    end)
    return concat(digits)
end

local function submit_any(t, name, frame, options)
    local like = t.like
    if not (like.cost and Kept.kind(name)) then return 4 end
    if is_batch_entry(name) and like.packed then return submit_batch_entry(t, name, frame, options) end
    if #name ~= ID or like.packed then return 4 end
    return submit_one(t, name, frame, options)
end

do

-- How long is known what was answered where not all was queued, which takes room.
local REPLY_S = '60'

-- The fields of the state that the call needs: of its front end, "SEQ REFUSED SECOND", its last call, the last
-- one in which not all was queued, and when that was; and how many jobs of each operation were submitted.
local function submit_fields(args)
    local fields, last = {'numbers', 'idle', 's:' .. args[2], 'refused', nil}, nil
    for i = 9, min(#args, 60), 6 do
        local counted = alike(args[i - 3], args[i - 2], args[i]).counted
        if counted and counted ~= last then last, fields[#fields + 1] = counted, counted end
    end
    return fields
end

-- What was answered of a job, or a batch entry, in a call that is known, while its reply is not any more; nil
-- where it was not queued, and is to be tried anew.
local function submit_again(t, name, frame)
    local tenant, digits, any = t.like.tenant or '', {}, false
    local function queued(id) return call('HEXISTS', K.pending, id) == 1 or Kept.find(id, tenant) ~= nil end
    if not is_batch_entry(name) then return queued(name) and 0 or nil end
    if call('HEXISTS', K.pending, name) == 1 or call('HEXISTS', K.opened, name) == 1 then return 0 end
    each_record_frame(frame, function(id)
        local is = queued(id)
        any, digits[#digits + 1] = any or is, is and '0' or '1'
    end)
    return any and concat(digits) or nil
end

submit = function(keys, args)
    start(keys, args, submit_fields)
    local seq = args[3]
    if #args % 6 ~= 3 then return redis.error_reply('ERR submit takes six arguments a job') end
    local last, refused = match(State.field(3) or '', '^(%d+) (%d+)')
    local again = #args > 3 and tonumber(last or 0) >= tonumber(seq)
    local why = refused_now()
    if why and not again then return redis.error_reply('DISK ' .. why) end -- of what was taken it is too late
    local t, reply, all_queued = intake_new(), {now, 0, 0, nil}, true
    local kept = again and call('GET', K.sent_of .. args[2] .. ':' .. seq)
    if kept then return cmsgpack.unpack(kept) end
    local unsure = again and tonumber(refused) >= tonumber(seq)
    for i = 4, #args, 6 do
        local r = 0
        if unsure or not again then
            submit_like(t, alike(args[i + 2], args[i + 3], args[i + 5]))
            r = unsure and submit_again(t, args[i], args[i + 1]) or
                submit_any(t, args[i], args[i + 1], args[i + 4])
        end
        reply[#reply + 1], all_queued = r, all_queued and r == 0
    end
    if t.segs then for seg, jobs in pairs(t.segs) do refer(seg, jobs) end end
    submit_like(t, false)
    intake_give(t)
    reply[2], reply[3] = t.jobs, t.sum
    if #args > 3 and not again then
        if not all_queued then
            call('SET', K.sent_of .. args[2] .. ':' .. seq, cmsgpack.pack(reply), 'EX', REPLY_S)
            refused = seq
        end
        State.change(3, seq .. ' ' .. (refused or '0') .. ' ' .. sub(now_text, 1, -7))
    end
    return reply
end

end

end

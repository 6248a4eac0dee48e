-- What front ends call. Read next: workers.lua.

local function open(keys, args)
    start(keys, args)
    if args[3] == '1' then call('SET', K.store, args[2]) else call('SETNX', K.store, args[2]) end
    make_groups()
    return call('GET', K.store)
end

-- The final record of `id`, or nil; the second result is the piece it is in.
local function recorded(id)
    local bucket = bucket_of(id)
    local piece = bucket and call('HGET', K.rec_of .. bucket, id)
    if not piece then return nil end
    return sub(piece, PIECE_HEAD + 1), piece
end

local function unknown(id)
    local bucket = bucket_of(id)
    if not bucket then return 404 end
    local kind, b = match(bucket, '^(%a):(%d+)$')
    local gone = tonumber(call('HGET', K.gone, kind) or -1)
    local ended_by = (tonumber(b) + 1) * WIDTH[kind] + L.ttl[kind]
    return (tonumber(b) <= gone or ended_by * 1000000 < now) and 410 or 404
end

-- Adds or takes out a channel of a stub; returns the stub as it then is.
local function stub_watch(id, stub, channel, on)
    local head, channels, tail = match(stub, '^([^\t]*)\t([^\t]*)(\t.*)$')
    local kept = {}
    if not head then return stub end
    for one in gmatch(channels, '[^,]+') do
        if one ~= channel then kept[#kept + 1] = one end
    end
    if on then kept[#kept + 1] = channel end
    local changed = head .. '\t' .. concat(kept, ',') .. tail
    if changed ~= stub then call('HSET', K.pending, id, changed) end
    return changed
end

-- Where a submission stands whose Idempotency-Key is `key`: nil to go on, else its reply.
local function repeated(key, fingerprint, channel)
    local text = call('GET', key)
    if not text then return nil end
    local id, print = match(text, '^(%S+) (%S+)$')
    local stub = call('HGET', K.pending, id)
    local record = not stub and recorded(id)
    if not stub and not record then return nil end -- its record has expired, so the key is free
    if print ~= fingerprint then return 2 end
    if channel == '' then return {id, ''} end
    if stub then
        stub_watch(id, stub, channel, true)
        return {id, ''}
    end
    return {id, record}
end

local function submit(keys, args)
    start(keys, args)
    if #args % 6 ~= 1 then return redis.error_reply('ERR submit takes six arguments a job') end
    local jobs, bytes = call('HLEN', K.pending), tonumber(call('GET', K.bytes) or 0)
    local before, reply, stubs, count, tried = bytes, {now, 0, 0}, {}, {0, 0, 0}, false
    local seg, seg_jobs, seg_note, streams = nil, 0, nil, {}
    local cost_text, cost, when -- the same for many jobs as a rule
    for i = 2, #args, 6 do
        local id, si = args[i], args[i + 2]
        if args[i + 3] ~= cost_text then
            cost_text = args[i + 3]
            cost, when = tonumber(cost_text), ' ' .. now_text .. ' ' .. cost_text .. ' '
        end
        local options, note = args[i + 4], args[i + 5]
        local r, deadline, blob, idem, fingerprint = 0, nil, '0', nil, nil
        if not (cost and K.s[si] and bucket_of(id)) then
            options, r = '', 4
        end
        if options ~= '' then
            call_many('HSET', K.pending, stubs) -- earlier jobs of this call must be seen
            stubs = {}
            local head, print, key = match(options, '^(.-)k=([^:]*):(.*)$')
            head = ' ' .. (head or options)
            local ms = tonumber(match(head, ' d=(%d+)') or 0)
            if ms > 0 then deadline = whole(now + ms * 1000) end
            if find(head, ' [bB]=1') then blob = '1' end
            if find(head, ' B=1') and call('HEXISTS', K.blobs, id .. '.in') == 0 then r = 3 end
            if find(head, ' r=1') and (call('HEXISTS', K.pending, id) == 1 or recorded(id)) then
                r = -1
            end
            if key and r == 0 then
                local channel, tenant = match(note, '^[^\t]*\t([^\t]*)\t[^\t]*\t(.*)$')
                idem, fingerprint = K.idem_of .. tenant .. ':' .. key, print
                r = repeated(idem, print, channel) or 0
            end
        end
        if r == 0 and (jobs >= L.queue_jobs or bytes + cost > L.queue_bytes) then
            if not tried then
                tried = true
                call_many('HSET', K.pending, stubs)
                if bytes ~= before then call('INCRBY', K.bytes, whole(bytes - before)) end
                stubs = {}
                expire_due()
                jobs, bytes = call('HLEN', K.pending), tonumber(call('GET', K.bytes) or 0)
                before = bytes
            end
            if jobs >= L.queue_jobs or bytes + cost > L.queue_bytes then r = 1 end
        end
        if r == 0 then
            local entry = call('XADD', K.s[si], '*', 'j', id .. when .. blob, 'f', args[i + 1])
            local n = #stubs
            stubs[n + 1] = id
            stubs[n + 2] = si .. ' ' .. entry .. when .. (deadline or '0') .. note
            jobs, bytes = jobs + 1, bytes + cost
            if byte(note) == 32 then -- its inputs lie in a segment, the same one as a rule
                if note ~= seg_note then
                    local own = match(note, '^ (%x+)')
                    if own ~= seg then
                        if seg_jobs > 0 then refer(seg, seg_jobs) end
                        seg, seg_jobs = own, 0
                    end
                    seg_note = note
                end
                seg_jobs = seg_jobs + 1
            end
            if deadline then call('ZADD', K.deadlines, deadline, id) end
            if idem then call('SET', idem, id .. ' ' .. fingerprint, 'EX', L.ttl.a) end
            local class = CLASS_OF[si]
            count[class], streams[si] = count[class] + 1, true
        end
        reply[#reply + 1] = r == -1 and 0 or r
    end
    if seg_jobs > 0 then refer(seg, seg_jobs) end
    call_many('HSET', K.pending, stubs)
    if bytes ~= before then call('INCRBY', K.bytes, whole(bytes - before)) end
    local new = count[1] + count[2] + count[3]
    if new > 0 then
        local all = jobs == new and {jobs = jobs, bytes = bytes, streams = streams} or nil
        wake(count[1], count[2], count[3], new, all)
    end
    reply[2], reply[3] = jobs, bytes
    return reply
end

local function look(args, from, each)
    local reply, finder = {}, running_finder(#args - from + 1)
    for i, stub in ipairs(get_many(K.pending, args, from)) do
        local id = args[from + i - 1]
        if stub then
            if each then stub = each(id, stub) end
            reply[i] = terse(id, parse(stub), nil, nil, finder)
        else
            reply[i] = recorded(id) or unknown(id)
        end
    end
    return reply
end

local function get(keys, args)
    start(keys, args)
    return look(args, 2)
end

local function watch(keys, args)
    start(keys, args)
    return look(args, 3, function(id, stub) return stub_watch(id, stub, args[2], true) end)
end

local function unwatch(keys, args)
    start(keys, args)
    for i, stub in ipairs(get_many(K.pending, args, 3)) do
        if stub then stub_watch(args[2 + i], stub, args[2], false) end
    end
    return 0
end

-- Deletes the record of an ended job.
local function forget(id, record)
    local bucket = bucket_of(id)
    local blob = tonumber(call('HGET', K.out_of .. bucket, id) or 0)
    local bytes = whole(-(PIECE_HEAD + #record + blob + RECORD_OVERHEAD))
    call('HDEL', K.rec_of .. bucket, id)
    call('HDEL', K.out_of .. bucket, id)
    call('HINCRBY', K.recbytes, bucket, bytes)
    call('HINCRBY', K.recbytes, 'total', bytes)
end

local function cancel(keys, args)
    start(keys, args)
    local reply, e, finder = {}, ending_new(), running_finder(#args - 1)
    local seen = {}
    for i, stub in ipairs(get_many(K.pending, args, 2)) do
        local id = args[1 + i]
        if seen[id] then
            reply[i] = 404
        elseif stub then
            local job = parse(stub)
            reply[i] = ending_add_terse(e, id, job, 'cancelled', 'cancelled', finder)
        else
            local record = recorded(id)
            if record then forget(id, record) end
            reply[i] = record or unknown(id)
        end
        seen[id] = true
    end
    ending_commit(e)
    return reply
end

local LIST_BYTES = 8388608

-- Up to about `want` pairs of a hash, as a flat list; which ones is chance where there are more.
local function sample(key, want)
    local pairs_, cursor = {}, '0'
    repeat
        local r = call('HSCAN', key, cursor, 'COUNT', min(want, 1000))
        cursor = r[1]
        for _, value in ipairs(r[2]) do pairs_[#pairs_ + 1] = value end
    until cursor == '0' or #pairs_ >= 2 * want
    return pairs_
end

-- Appends the records of the newest rows; a row is {time, record} or, of a pending job, {time, id,
-- job}. Returns the bytes listed so far.
local function newest_first(rows, limit, reply, bytes, finder)
    table.sort(rows, function(a, b) return a[1] > b[1] end)
    for i = 1, min(limit, #rows) do
        local row = rows[i]
        local record = row[3] and terse(row[2], row[3], nil, nil, finder) or row[2]
        bytes = bytes + #record
        if bytes > LIST_BYTES then break end
        reply[#reply + 1] = record
    end
    return bytes
end

local function list_pending(which, limit, reply)
    local running, rows, finder = {}, {}, running_finder(1000)
    for _, name in ipairs(call('HKEYS', K.workers)) do
        for line in gmatch(call('GET', K.run_of .. name) or '', '[^\n]+') do
            for id in gmatch(match(line, '^%d+(.*)$') or '', '%S+') do running[id] = true end
        end
    end
    if which ~= 'queued' then
        local ids = {}
        for id in pairs(running) do ids[#ids + 1] = id end
        for i, stub in ipairs(get_many(K.pending, ids)) do
            if stub then
                local job = parse(stub)
                rows[#rows + 1] = {tonumber(job.us), ids[i], job}
            end
        end
    end
    local bytes = newest_first(rows, limit, reply, 0, finder)
    if which == 'running' then return bytes end
    rows = {}
    local some = sample(K.pending, 4 * limit)
    for i = 1, #some, 2 do
        if not running[some[i]] then
            local id, job = some[i], parse(some[i + 1])
            rows[#rows + 1] = {tonumber(job.us), id, job}
        end
    end
    return newest_first(rows, limit, reply, bytes, finder)
end

-- Whether `limit` rows are as new as `second`.
local function enough(rows, limit, second)
    if #rows < limit then return false end
    local n = 0
    for _, row in ipairs(rows) do
        if row[1] >= second then n = n + 1 end
    end
    return n >= limit
end

local function list_ended(limit, reply, bytes)
    local order, rows, size = {}, {}, 0
    for _, bucket in ipairs(call('ZRANGE', K.recs, 0, -1)) do
        local kind, b = match(bucket, '^(%a):(%d+)$')
        order[#order + 1] = {(tonumber(b) + 1) * WIDTH[kind], bucket} -- all in it are older
    end
    table.sort(order, function(a, b) return a[1] > b[1] end)
    for _, pair in ipairs(order) do
        if size > 2 * LIST_BYTES or enough(rows, limit, pair[1]) then break end
        local some = sample(K.rec_of .. pair[2], limit)
        for i = 1, #some, 2 do
            rows[#rows + 1] = {tonumber(sub(some[i], 2, 9), 16), sub(some[i + 1], PIECE_HEAD + 1)}
            size = size + #some[i + 1]
        end
    end
    newest_first(rows, limit, reply, bytes)
end

local function list(keys, args)
    start(keys, args)
    local which, limit, reply, bytes = args[2], min(tonumber(args[3]), 10000), {}, 0
    if which ~= 'ended' then bytes = list_pending(which, limit, reply) end
    if which == 'ended' or which == 'any' then list_ended(limit, reply, bytes) end
    return reply
end

-- How many pending jobs of each SI the text of a worker names; the second result is their sum.
local function count_named(text, pattern, counts)
    local ids, sum = {}, 0
    for line in gmatch(text or '', '[^\n]+') do
        for id in gmatch(match(line, pattern) or '', '%S+') do ids[#ids + 1] = id end
    end
    for _, stub in ipairs(get_many(K.pending, ids)) do
        if stub then
            local si = sub(stub, 1, 1)
            counts[si] = (counts[si] or 0) + 1
            sum = sum + 1
        end
    end
    return sum
end

local function stats(keys, args)
    start(keys, args)
    local infos, claimed, running, workers = {}, {}, 0, call('HGETALL', K.workers)
    for i = 1, #workers, 2 do
        local name = workers[i]
        if call('EXISTS', K.lease_of .. name) == 1 then
            infos[#infos + 1] = cjson.encode(name) .. ':' .. match(workers[i + 1], '^%S+ %S+ (.*)$')
        end
        count_named(call('GET', K.held_of .. name), '^(.*)$', claimed)
        running = running + count_named(call('GET', K.run_of .. name), '^%d+(.*)$', {})
    end
    local parts = {}
    for c, class in ipairs(CLASSES) do
        local rows = {}
        for p, priority in ipairs(PRIORITIES) do
            local si = tostring((c - 1) * 3 + p)
            local held = claimed[si] or 0
            rows[p] = format('"%s":{"queued":%d,"claimed":%d}', priority,
                             max(call('XLEN', K.s[si]) - held, 0), held)
        end
        parts[c] = format('"%s":{%s}', class, concat(rows, ','))
    end
    return format('{"workers":{%s},"queue":{"jobs":%d,"bytes":%s,"running":%d,' ..
                  '"records_bytes":%s,%s}}',
                  concat(infos, ','), call('HLEN', K.pending), call('GET', K.bytes) or '0', running,
                  call('HGET', K.recbytes, 'total') or '0', concat(parts, ','))
end

local function refs(keys, args)
    start(keys, args)
    local digits = {}
    for i = 2, #args do
        local id, kind = match(args[i], '^([sa]?%x+)%.(%a+)$')
        local bucket = id and #id == 41 and bucket_of(id)
        local yes = kind == 'seg' and call('HEXISTS', K.refs, id) == 1 or
                    bucket and (call('HEXISTS', K.pending, id) == 1 or
                                (kind == 'out' and call('HEXISTS', K.out_of .. bucket, id) == 1) or
                                call('EXISTS', K.hold_of .. args[i]) == 1)
        digits[#digits + 1] = yes and '1' or '0'
    end
    return concat(digits)
end

local function tick(keys, args)
    start(keys, args)
    return housekeeping()
end

local function blob(keys, args)
    start(keys, args)
    call('HSET', K.blobs, args[2], args[3])
    call('SET', K.hold_of .. args[2], '1', 'EX', 120)
    return 0
end

local PIECE = 1048576

local function blob_drop(keys, args)
    start(keys, args)
    for i = 2, #args do
        local bytes = tonumber(call('HGET', K.blobs, args[i]) or 0)
        for piece = 0, floor(max(bytes - 1, 0) / PIECE) do
            call('UNLINK', K.blob_of .. args[i] .. ':' .. piece)
        end
        call('HDEL', K.blobs, args[i])
        call('DEL', K.hold_of .. args[i])
    end
    return 0
end

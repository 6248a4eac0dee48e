-- What front ends call, but for jobs that they submit and lists. Read next: submit.lua.

local function open(keys, args)
    start(keys, args)
    settle(keys[1], args[3] == '1')
    if args[3] == '1' then call('SET', K.store, args[2]) else call('SETNX', K.store, args[2]) end
    return call('GET', K.store)
end

-- Adds a channel to a meta; returns the meta as it then is.
local function meta_watch(id, meta, channel)
    local head, channels, tail = match(meta, '^([^\t]*\t)([^\t]*)(\t.*)$')
    if not head or find(',' .. channels .. ',', ',' .. channel .. ',', 1, true) then return meta end
    local changed = head .. channels .. (channels ~= '' and ',' or '') .. channel .. tail
    call('HSET', K.pending, id, changed)
    return changed
end

-- Notes in a meta that the end is kept as long as those of kind a; returns the meta as it then is, or nil.
local function meta_promise(id, meta)
    local head, flags, tail = match(meta, '^(%w %d+ %d+ )([01])( .*)$')
    if not head then return nil end
    meta = head .. tonumber(flags) + 2 .. tail
    call('HSET', K.pending, id, meta)
    return meta
end

-- The meta that stands for each job, false where it is not pending.
local function metas_of(tenant, ids, from)
    local metas = get_many(K.pending, ids, from)
    local batch_entry, whole_meta, record_frames
    for i, meta in ipairs(metas) do
        local id = ids[from + i - 1]
        meta = own(meta, tenant)
        if not meta and sub(id, 1, BATCH_ENTRY) ~= batch_entry then -- else they are in the last one's batch entry
            batch_entry = sub(id, 1, BATCH_ENTRY)
            whole_meta = own(call('HGET', K.pending, batch_entry), tenant)
            record_frames = whole_meta and frame_of(batch_entry) or ''
        end
        if not meta and whole_meta and find_record_frame(record_frames, id) then meta = whole_meta end
        metas[i] = meta
    end
    return metas
end

-- What is to be said of jobs whose metas are these.
local function look(tenant, ids, from, metas)
    local reply, finder = {}, running_finder(#ids - from + 1)
    for i, meta in ipairs(metas) do
        local id = ids[from + i - 1]
        if meta then
            reply[i] = summary(id, parse(meta), nil, nil, finder)
        else
            reply[i] = Kept.find(id, tenant) or Kept.unknown(id)
        end
    end
    return reply
end

local function get(keys, args)
    start(keys, args)
    return look(args[2], args, 3, metas_of(args[2], args, 3))
end

-- What is pending of these is watched by the channel, or, with channel "", kept once it has ended as long as what
-- nobody waited for.
local function watch(keys, args)
    start(keys, args)
    local tenant, channel = args[2], args[3]
    if find(channel, '[\t,]') then return redis.error_reply('ERR watch: no channel') end
    local metas = metas_of(tenant, args, 4)
    for i, meta in ipairs(metas) do
        local id = args[3 + i]
        if meta and channel == '' and byte(id) == 115 and not parse(meta).promised then
            metas[i] = meta_promise(id, metas_alone({id})[1] or '') or meta
        elseif meta and channel ~= '' and parse(meta).channels ~= channel then
            local alone = metas_alone({id})[1]
            metas[i] = alone and meta_watch(id, alone, channel)
        end
    end
    return look(tenant, args, 4, metas)
end

local function cancel(keys, args)
    start(keys, args)
    local reply, e, finder = {}, completion_new(), running_finder(#args - 3)
    local seen, tenant, too = {}, args[2], args[3] == '1'
    for i, meta in ipairs(metas_alone(args, 4, tenant)) do
        local id = args[3 + i]
        if seen[id] then
            reply[i] = 404
        elseif meta then
            local job = parse(meta)
            reply[i] = completion_add_summary(e, id, job, 'cancelled', 'cancelled', finder)
        else
            local record, head = Kept.find(id, tenant)
            if record and too then Kept.forget(id, head) end
            reply[i] = record and (too and record or 409) or Kept.unknown(id)
            -- a pending job may refer to its outputs
            if record and too and call('HEXISTS', K.refs, id .. '.out') == 1 then
                reply[i] = {record}
            end
        end
        seen[id] = true
    end
    completion_commit(e)
    return reply
end

-- Whether a text of a worker about itself can stand in one of ours: it is one object, and cjson would read
-- none behind a zero.
local function info_ok(info)
    if byte(info) ~= 123 or find(info, '%z') then return false end
    local ok, value = pcall(cjson.decode, info)
    return ok and type(value) == 'table'
end

local stats
do

-- The row of a quick place, for all lanes: jobs that wait and that run, predicted us of both, and since when
-- the oldest of those that wait does.
local function row_of(rows, si)
    local row = rows[SI.quick[si]] or {queued = 0, running = 0, work = 0, since = now}
    rows[SI.quick[si]] = row
    return row
end

-- Adds what workers hold, and to `own` the jobs of that tenant: what they have not begun waits.
local function add_held(rows, workers, tenant, own)
    for i = 1, #workers, 2 do
        local names, begun = holdings(workers[i])
        local found, metas = resolve(names)
        for k, meta in ipairs(metas) do
            local job, name = parse(meta), found[k]
            local row = row_of(rows, job.si)
            row.work = row.work + job.jobs * job.time
            if job.tenant == tenant then own[SI.class[job.si]] = own[SI.class[job.si]] + job.jobs end
            if begun[name] or begun[sub(name, 1, BATCH_ENTRY)] then
                row.running = row.running + job.jobs
            else
                row.queued, row.since = row.queued + job.jobs, min(row.since, tonumber(job.us))
            end
        end
    end
end

-- Adds a line: the first name, or one behind some tombstones, has waited for longest, and the others are taken
-- to be like the first ones.
local function look_at(row, line, jobs)
    local _, metas = resolve(call('LRANGE', line_key(line), 0, 31))
    local seen, time = 0, 0
    for _, meta in ipairs(metas) do
        local job = parse(meta)
        row.since = min(row.since, tonumber(job.us))
        seen, time = seen + job.jobs, time + job.jobs * job.time
    end
    if seen > 0 then row.work = row.work + time / seen * jobs end
end

-- What each tenant has, as JSON.
local function tenants_text()
    local has, texts = {}, {}
    local function add(tenant, field, value)
        local fields = has[tenant] or {}
        has[tenant], fields[#fields + 1] = fields, format('"%s":%s', field, value)
    end
    local waits = {}
    for line, jobs in pairs(waiting()) do
        waits[sub(line, 3)] = (waits[sub(line, 3)] or 0) + jobs
    end
    for tenant, jobs in pairs(waits) do add(tenant, 'waiting', jobs) end
    local used, kept, sums = call('HGETALL', K.used), call('HGETALL', K.kept), {}
    for i = 1, #used, 2 do
        local field, tenant = match(used[i], '^(%a+) (.+)$')
        if field then add(tenant, field, used[i + 1]) end
    end
    for i = 1, #kept, 2 do
        local its = sub(kept[i], 3)
        sums[its] = (sums[its] or 0) + tonumber(kept[i + 1])
    end
    for its, bytes in pairs(sums) do add(its, 'results_bytes', whole(bytes)) end
    for tenant, fields in pairs(has) do
        texts[#texts + 1] = cjson.encode(tenant) .. ':{' .. concat(fields, ',') .. '}'
    end
    return concat(texts, ',')
end

stats = function(keys, args)
    start(keys, args)
    local more, tenant, own = args[2] ~= '' and args[2], args[3], {0, 0, 0}
    local figures, infos, rows, running = {}, {}, {}, 0
    local workers = call('HGETALL', K.workers)
    for i = 1, #workers, 2 do
        local name = workers[i]
        if is_alive(name) then
            infos[#infos + 1] = cjson.encode(name) .. ':' .. match(workers[i + 1], '^%S+ %S+ (.*)$')
            local told = more and call('GET', K.figures_of .. name)
            if told and info_ok(told) then
                figures[#figures + 1] = cjson.encode(name) .. ':' .. told
            end
        end
    end
    local parts, own_parts = {}, {}
    add_held(rows, workers, tenant, own)
    for line, jobs in pairs(waiting()) do
        local si = sub(line, 1, 1)
        local row = row_of(rows, si)
        row.queued = row.queued + jobs
        if sub(line, 3) == tenant then own[SI.class[si]] = own[SI.class[si]] + jobs end
        if more and jobs > 0 then look_at(row, line, jobs) end
    end
    for c, class in ipairs(CLASSES) do
        local texts = {}
        for p, priority in ipairs(PRIORITIES) do
            local row = row_of(rows, SI[(c - 1) * 3 + p])
            running = running + row.running
            texts[p] = format('"%s":{"queued":%d,"claimed":%d%s}', priority, row.queued, row.running,
                              more and ',"oldest_us":' .. whole(now - row.since) .. ',"work_us":' ..
                                       whole(row.work) or '')
        end
        parts[c] = format('"%s":{%s}', class, concat(texts, ','))
        own_parts[c] = format('"%s":%d', class, own[c])
    end
    local totals, all = {}, call('HGETALL', K.state)
    for i = 1, #all, 2 do
        if find(all[i], ' ', 1, true) then totals[#totals + 1] = cjson.encode(all[i]) .. ':' .. all[i + 1] end
    end
    return format('{"totals":{%s},"workers":{%s},%s%s%s"queue":{"jobs":%d,"bytes":%s,"running":%d,' ..
                  '"records_bytes":%s,%s},"tensors":{"count":%d,"bytes":%s},"webhooks":%d}',
                  concat(totals, ','), concat(infos, ','),
                  more and '"figures":{' .. concat(figures, ',') .. '},' or '',
                  more == 'tenants' and '"tenants":{' .. tenants_text() .. '},' or '',
                  tenant and '"own":{' .. concat(own_parts, ',') .. '},' or '',
                  S.jobs, whole(S.bytes), running,
                  whole(S.kept_s + S.kept_a), concat(parts, ','),
                  call('HLEN', K.tensors), call('HGET', K.tensor_bytes, ':') or '0',
                  call('XLEN', K.hooks))
end

end

local function tick(keys, args)
    start(keys, args)
    settle(keys[1])
    if args[2] then call('HSETNX', K.state, 'idkey', args[2]) end
    if args[3] == '1' then Record.events.watch() end
    local facts = housekeeping()
    facts[#facts + 1] = call('LPOP', K.unlogged, 100) or {}
    facts[#facts + 1] = L.text
    return facts
end

local Blob = {}
do

local function note(blob, bytes)
    call('SET', K.hold_of .. blob, '1', 'EX', 120)
    return call('HSET', K.blobs, blob, bytes)
end

function Blob.hold(keys, args)
    start(keys, args)
    if not count_of(args[3]) then return redis.error_reply('ERR blob: no number') end
    return note(args[2], args[3])
end

-- Whether anything refers to the blob, or the segment; then, whether it is of a name that may be on hold.
local function blob_referred(blob)
    local id, kind = match(blob, '^([sat]?%x+)%.(%a+)$')
    local place = id and #id == ID and Kept.kind(id)
    local yes = kind == 'seg' and (call('HEXISTS', K.refs, id) == 1 or Kept.has_segment(id)) or
                kind ~= 'seg' and id and Tensor.referred(id, blob) or
                place and (call('HEXISTS', K.pending, id) == 1 or
                           call('HEXISTS', K.pending, sub(id, 1, BATCH_ENTRY)) == 1 or
                           kind == 'out' and Kept.is_out(id))
    return yes, place or id and byte(id) == 116
end

function Blob.refs(keys, args)
    start(keys, args)
    local digits = {}
    for i = 2, #args do
        local yes, may = blob_referred(args[i])
        digits[#digits + 1] = (yes or may and call('EXISTS', K.hold_of .. args[i]) == 1) and '1' or '0'
    end
    return concat(digits)
end

local CHUNK, CHUNKS_MOST = 1048576, 65536 -- of a blob; more are no blob's

-- Of a blob of so many bytes; one also where it has none.
local function last_chunk(bytes) return min(floor(max(tonumber(bytes or 0) - 1, 0) / CHUNK), CHUNKS_MOST) end

local function drop_chunks(blob, from, to)
    for chunk = from, to do call('UNLINK', K.blob_of .. blob .. ':' .. chunk) end
end

-- Who asks for it may not know yet that the blob has become another's: a worker that stood still.
local function drop(blob)
    if blob_referred(blob) then return end
    drop_chunks(blob, 0, last_chunk(call('HGET', K.blobs, blob)))
    call('HDEL', K.blobs, blob)
    call('DEL', K.hold_of .. blob)
end

function Blob.drop(keys, args)
    start(keys, args)
    for i = 2, #args do drop(args[i]) end
    return 0
end

-- What others are writing, as front ends do inputs before they submit a job, is on hold, and not a worker's to
-- drop.
local function is_in_the_making(blob)
    return not find(blob, '%.out$') and call('EXISTS', K.hold_of .. blob) == 1
end

function Blob.free(keys, args)
    start(keys, args)
    for i = 2, #args do
        if not is_in_the_making(args[i]) then drop(args[i]) end
    end
    return 0
end

-- Outputs of a job that the worker holds, or what is yet to become a tensor, one of its outputs.
function Blob.write(keys, args)
    start(keys, args)
    local name, blob, bytes, chunk, data = args[2], args[4], args[5], args[6], args[7]
    local lost = lapsed(name, args[3])
    if lost then return lost end
    local id, kind = match(blob, '^([sat]%x+)%.(%a+)$')
    local last = last_chunk(count_of(bytes))
    if not id or #id ~= ID or not count_of(bytes, Record.BYTES_MOST) or not count_of(chunk) or not data or #data > CHUNK or
       tonumber(chunk) > last then
        return redis.error_reply('ERR blob_write: no blob, or no chunk of it')
    end
    drop_chunks(blob, last + 1, last_chunk(call('HGET', K.blobs, blob))) -- of another try, which was longer
    note(blob, bytes)
    call('SET', K.blob_of .. blob .. ':' .. chunk, data)
    return 0
end

end

-- Ending jobs, many at a time, and the records that stay of them. Read next: giving.lua.

-- What has ended, to be written by completion_commit; others of its members few calls need.
local function completion_new()
    return {count = 0, jobs = 0, cost = 0, results = 0, names = {nil, nil}, into = {nil}, told = {x = nil},
            ends = {x = nil}, channel = false, settles = S.shared > 0 and {} or nil}
end

-- Counts the ends of a job's, or a batch entry's, records.
local function count_ends(ends, op, record_frames)
    local at, most, good = 1, #record_frames, 0
    while at + RECORD_FRAME_HEAD - 1 <= most do
        local record = at + RECORD_FRAME_HEAD
        local state = Record.state(record_frames, record)
        if state == 'succeeded' then -- most of them
            good = good + 1
        else
            local label = op .. ' ' .. (state or 'failed')
            if not state or state == 'failed' then
                label = label .. ' ' .. Record.error(record_frames, record)
            end
            ends[label] = (ends[label] or 0) + 1
        end
        at = record + struct.unpack('<I4', record_frames, at)
    end
    if good > 0 then
        local label = op .. ' succeeded'
        ends[label] = (ends[label] or 0) + good
    end
end

local TOLD = 1048576 -- bytes of one message
local JOINED = 4096  -- longer record frames are not joined: to hash the result costs more than a message

local function completion_tell(e, channel, record_frames)
    local told = e.told[channel]
    if told and told.bytes + #record_frames > (#record_frames > JOINED and 0 or TOLD) then
        call('PUBLISH', channel, #told > 1 and concat(told) or told[1])
        told = nil
    end
    if not told then
        told = {record_frames, bytes = #record_frames}
        e.told[channel] = told
        return
    end
    told[#told + 1], told.bytes = record_frames, told.bytes + #record_frames
end

-- Notes that the pending job, or batch entry, has ended with `record_frames`. `out_bytes` lie outside the
-- records: in the blob ID.out, or in segments, " SEG JOBS SEG JOBS ...". `label`: how it is counted,
-- where the records do not say.
local function completion_add(e, name, job, record_frames, out_bytes, out_segs, label)
    if job.url then Hook.ended(name, job.tenant, job.url, record_frames) end
    local count, seg, channels = e.count + 1, job.seg, job.channels
    local jobs, tenant = job.jobs, job.tenant
    e.count, e.names[2 * count - 1], e.names[2 * count] = count, name, frame_field(name)
    e.jobs, e.cost, e.results = e.jobs + jobs, e.cost + jobs * job.cost, e.results + jobs * job.result
    if seg ~= '' then
        local segs = e.segs or {}
        e.segs, segs[seg] = segs, (segs[seg] or 0) - jobs
    end
    if tenant ~= NOBODY then
        e.of = e.of or {}
        local of = e.of[tenant] or {}
        e.of[tenant], of[#of + 1] = of, name
    end
    if job.metered then
        e.used = e.used or {}
        local used = e.used[tenant] or {jobs = 0, bytes = 0, results = 0}
        e.used[tenant] = used
        used.jobs, used.bytes = used.jobs - jobs, used.bytes - jobs * job.cost
        used.results = used.results - jobs * job.result
    end
    if L.ended_jobs > 0 then note_ended(job, record_frames) end
    if label then
        e.ends[label] = (e.ends[label] or 0) + 1
    else
        count_ends(e.ends, job.op, record_frames)
    end
    if job.holds then
        e.holds = e.holds or {}
        e.holds[#e.holds + 1] = job.holds
    end
    if job.makes then Tensor.count(tenant, -job.makes[1], -job.makes[2]) end
    if job.deadline ~= 0 then
        e.timed = e.timed or {}
        e.timed[#e.timed + 1] = name
    end
    local kind = job.promised and 'a' or byte(name) == 115 and 's' or 'a'
    local into = e.last
    if not into or into.kind ~= kind or into.tenant ~= tenant then
        local all = e.into
        for i = 1, #all do
            if all[i].kind == kind and all[i].tenant == tenant then into = all[i] end
        end
        if not into or into == e.last then
            into = {nil, nil, nil, nil, nil, nil, kind = kind, tenant = tenant, bytes = 0}
            all[#all + 1] = into
        end
        e.last = into
    end
    local bytes, key, segs = #record_frames + out_bytes + RECORD_OVERHEAD * jobs, job.key, false
    if key ~= '' then
        call('EXPIRE', K.idem_of .. tenant .. ':' .. key, L.ttl[kind]) -- by itself, whatever becomes of the record
        bytes = bytes + Kept.key_bytes(key)
    end
    if out_segs ~= '' then
        segs, out_bytes = {}, 0
        for out_seg, its_jobs in gmatch(out_segs, '(%x+) (%d+)') do
            segs[out_seg] = (segs[out_seg] or 0) + tonumber(its_jobs)
        end
    end
    local n = #into
    into[n + 1], into[n + 2], into[n + 3], into[n + 4], into[n + 5], into[n + 6] =
        name, record_frames, bytes, out_bytes, key, segs
    into.bytes = into.bytes + bytes
    if S.watched > now then Record.events.ended(job, record_frames) end
    if channels == '' then return end
    if channels ~= e.channel and find(channels, ',', 1, true) then
        for channel in gmatch(channels, '[^,]+') do completion_tell(e, channel, record_frames) end
    else
        e.channel = channels
        completion_tell(e, channels, record_frames)
    end
end

-- Jobs that a worker of that class has ended: their tenant's share is of what they took, not of what was
-- predicted when they were given. The jobs of a batch entry are taken to be like the first one.
local function settle_share(e, class, job, record_frames)
    local us = job.metered and Record.device_us(record_frames, RECORD_FRAME_HEAD + 1)
    if not us then return end
    local field = class .. '-' .. SI.priority[job.si] .. ' ' .. job.tenant
    e.settles[field] = (e.settles[field] or 0) + job.jobs * (us / job.metered - work_of(job))
end

-- Takes the tombstones out of a line, and counts what it holds; what is left keeps its order.
local function compact(line)
    local key, jobs = line_key(line), 0
    local left = call('LLEN', key)
    while left > 0 do
        local names = call('LPOP', key, min(left, MANY))
        local alive, metas = resolve(names)
        for _, meta in ipairs(metas) do jobs = jobs + parse(meta).jobs end
        call_many('RPUSH', key, alive)
        left = left - #names
    end
    tally(line, jobs - tonumber(call('HGET', K.lines, line) or 0))
end

-- Jobs that ended without a worker: those that no worker has been given leave their names in a
-- list, for to search it would take the longer the longer the queue is. So that what is left there
-- is not without bounds, a list more than half of which are such names is gone through.
local TOMBSTONES = 1000
local function count_tombstones(ended)
    local held, waited, names = {}, {}, {}
    for _, pair in ipairs(ended) do
        names[#names + 1], names[#names + 2] = pair[1], sub(pair[1], 1, BATCH_ENTRY)
    end
    for _, worker in ipairs(call('HKEYS', K.workers)) do
        for i, label in ipairs(get_many(K.claims_of .. worker, names)) do
            if label then held[names[i]] = true end
        end
    end
    for _, pair in ipairs(ended) do
        local id, line = pair[1], pair[2]
        if not (held[id] or held[sub(id, 1, BATCH_ENTRY)]) then
            waited[line] = (waited[line] or 0) + 1
        end
    end
    for line, jobs in pairs(waited) do
        tally(line, -jobs)
        local names, alive = call('LLEN', line_key(line)), tonumber(call('HGET', K.lines, line) or 0)
        if names > alive + TOMBSTONES and names > 2 * alive then compact(line) end
    end
end

local function completion_commit(e)
    if e.count == 0 then return end
    call_many('HDEL', K.pending, e.names)
    if e.of then for tenant, names in pairs(e.of) do call_many('SREM', K.names_of .. tenant, names) end end
    if e.used then
        for tenant, used in pairs(e.used) do meter(tenant, used.jobs, used.bytes, used.results) end
    end
    if e.summaries then count_tombstones(e.summaries) end
    S.jobs, S.bytes, S.results = S.jobs - e.jobs, S.bytes - e.cost, S.results - e.results
    if e.timed then call_many('ZREM', K.deadlines, e.timed) end
    if e.holds then Tensor.release(e.holds) end
    if e.segs then for seg, by in pairs(e.segs) do refer(seg, by) end end
    for _, into in ipairs(e.into) do Kept.add(into) end
    for label, jobs in pairs(e.ends) do State.count(label, jobs) end
    if e.settles then for field, by in pairs(e.settles) do call('HINCRBY', K.shares, field, whole(by)) end end
    if e.kept then for _, one in ipairs(e.kept) do Tensor.keep(one[1], one[2]) end end
    for channel, told in pairs(e.told) do
        call('PUBLISH', channel, #told > 1 and concat(told) or told[1])
    end
end

local UNLOGGED = 1000 -- ends that wait for a front end to tell of them

-- Ends a pending job without a worker; returns its record.
local function completion_add_summary(e, id, job, state, code, finder)
    local record, trace = summary(id, job, state, code, finder)
    local record_frame = Record.framed(id, record)
    local label = job.op .. ' ' .. state .. (state == 'failed' and ' ' .. code or '')
    completion_add(e, id, job, record_frame, 0, '', label)
    if state ~= 'cancelled' or trace and byte(trace, 25) == 1 then -- a request logs that, but it has a span
        call('RPUSH', K.unlogged, id .. ' ' .. job.op .. ' ' .. state .. ' ' .. code .. ' ' .. job.tenant ..
                                  (trace and '\n' .. trace .. record or ''))
        call('LTRIM', K.unlogged, -UNLOGGED, -1)
    end
    e.summaries = e.summaries or {}
    e.summaries[#e.summaries + 1] = {id, job.line}
    return record
end

-- Ends jobs whose deadline has passed; true where there may be more.
local function expire_due()
    local ids = call('ZRANGE', K.deadlines, '-inf', now_text, 'BYSCORE', 'LIMIT', '0', '100')
    if #ids == 0 then return false end
    local e, finder = completion_new(), running_finder(#ids)
    for i, meta in ipairs(get_many(K.pending, ids)) do
        if meta then
            completion_add_summary(e, ids[i], parse(meta), 'expired', 'deadline_exceeded', finder)
        end
    end
    completion_commit(e)
    call_many('ZREM', K.deadlines, ids)
    return #ids == 100
end

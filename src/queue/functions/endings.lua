-- Ending jobs, many at a time, and the records that stay of them. Read next: giving.lua.

local function ending_new()
    return {count = 0, ids = {}, terse = {}, cost = 0, segs = {}, into = {}, told = {}}
end

local function ending_tell(e, channel, piece)
    local told = e.told[channel]
    if not told then
        told = {bytes = 0}
        e.told[channel] = told
    elseif told.bytes + #piece > 1048576 then
        call('PUBLISH', channel, concat(told))
        told = {bytes = 0}
        e.told[channel] = told
    end
    told[#told + 1] = piece
    told.bytes = told.bytes + #piece
end

-- Changes the number of references to a segment.
local function refer(seg, by)
    if call('HINCRBY', K.refs, seg, by) <= 0 then call('HDEL', K.refs, seg) end
end

-- Notes that the pending job `id` has ended with `piece`. `out_seg` holds its outputs; '': none.
-- `out_bytes` lie outside the record.
local function ending_add(e, id, job, piece, out_bytes, out_seg)
    local count, seg, channels = e.count + 1, job.seg, job.channels
    e.count, e.ids[count] = count, id
    e.cost = e.cost + job.cost
    if seg ~= '' then e.segs[seg] = (e.segs[seg] or 0) - 1 end
    local bucket = bucket_of(id)
    local into = e.into[bucket]
    if not into then
        into = {count = 0, bytes = 0, records = {}, outs = {}, segs = {}}
        e.into[bucket] = into
    end
    local n, records = into.count, into.records
    records[n + 1], records[n + 2], into.count = id, piece, n + 2
    into.bytes = into.bytes + #piece + out_bytes + RECORD_OVERHEAD
    if out_seg ~= '' then
        into.segs[out_seg] = (into.segs[out_seg] or 0) + 1
    elseif out_bytes > 0 then
        local outs = into.outs
        outs[#outs + 1], outs[#outs + 2] = id, whole(out_bytes)
    end
    if channels == '' then return end
    if channels ~= e.one_channel and find(channels, ',', 1, true) then
        for channel in gmatch(channels, '[^,]+') do ending_tell(e, channel, piece) end
    else
        e.one_channel = channels
        ending_tell(e, channels, piece)
    end
end

-- Forgets a bucket of records; returns how many blobs nobody refers to any more.
local function bucket_drop(bucket)
    local blobs, segs = call('HLEN', K.out_of .. bucket), call('HGETALL', K.seg_of .. bucket)
    for i = 1, #segs, 2 do refer(segs[i], whole(-segs[i + 1])) end
    call('UNLINK', K.rec_of .. bucket, K.out_of .. bucket, K.seg_of .. bucket)
    local bytes = call('HGET', K.recbytes, bucket)
    if bytes then
        call('HDEL', K.recbytes, bucket)
        call('HINCRBY', K.recbytes, 'total', whole(-bytes))
    end
    call('ZREM', K.recs, bucket)
    local kind, b = match(bucket, '^(%a):(%d+)$')
    local gone = tonumber(call('HGET', K.gone, kind) or -1)
    if tonumber(b) > gone then call('HSET', K.gone, kind, b) end
    return blobs
end

-- Drops the buckets whose last record ended longest ago until the records fit; one always stays.
local function buckets_fit(total, most)
    local blobs = 0
    for _ = 1, most do
        if total <= L.record_bytes or call('ZCARD', K.recs) < 2 then break end
        blobs = blobs + bucket_drop(call('ZRANGE', K.recs, 0, 0)[1])
        total = tonumber(call('HGET', K.recbytes, 'total') or 0)
    end
    return blobs
end

-- The same for results that were waited for, which have a limit of their own: of the newest buckets
-- as many stay as fit.
local function buckets_fit_sync()
    local sync, sum, blobs = {}, 0, 0
    for _, bucket in ipairs(call('ZRANGE', K.recs, 0, -1)) do
        if byte(bucket) == 115 then sync[#sync + 1] = bucket end
    end
    local bytes = get_many(K.recbytes, sync)
    for i = #sync, 1, -1 do
        sum = sum + tonumber(bytes[i] or 0)
        if i < #sync and sum > L.record_sync_bytes then blobs = blobs + bucket_drop(sync[i]) end
    end
    return blobs
end

-- Takes the ghosts out of a list; what is left keeps its order.
local function compact(si)
    local key = K.wait[si]
    local left = call('LLEN', key)
    while left > 0 do
        local ids, alive = call('LPOP', key, min(left, MANY)), {}
        for i, stub in ipairs(get_many(K.pending, ids)) do
            if stub then alive[#alive + 1] = ids[i] end
        end
        call_many('RPUSH', key, alive)
        left = left - #ids
    end
    call('HDEL', K.ghosts, si)
end

-- Jobs that ended without a worker: those that no worker has been given leave their ids in a list,
-- for to search it would take the longer the longer the queue is. So that what is left there is not
-- without bounds, a list more than half of which are such ids is gone through.
local GHOSTS = 1000
local function count_ghosts(ended)
    local held, ghosts = {}, {}
    for _, name in ipairs(call('HKEYS', K.workers)) do
        held[#held + 1] = call('GET', K.held_of .. name) or ''
    end
    held = concat(held, ' ')
    local named = #ended > 16 and {} -- of many, one look at the text is cheaper than a search each
    for id in gmatch(named and held or '', '%S+') do named[id] = true end
    for _, pair in ipairs(ended) do
        local id, si = pair[1], pair[2]
        local is_held = named and named[id] or not named and find(held, id, 1, true)
        if not is_held then ghosts[si] = (ghosts[si] or 0) + 1 end
    end
    for si, count in pairs(ghosts) do
        count = call('HINCRBY', K.ghosts, si, count)
        if count > GHOSTS and 2 * count > call('LLEN', K.wait[si]) then compact(si) end
    end
end

-- How many jobs wait in a list.
local function waiting(si)
    return max(call('LLEN', K.wait[si]) - max(tonumber(call('HGET', K.ghosts, si) or 0), 0), 0)
end

-- Returns the bytes of jobs that are still pending.
local function ending_commit(e, worker)
    if e.count == 0 then return 0 end
    call_many('HDEL', K.pending, e.ids)
    call_many('HDEL', K.frames, e.ids)
    if #e.terse > 0 then count_ghosts(e.terse) end
    local left = call('DECRBY', K.bytes, whole(e.cost))
    local prog = worker and K.prog_of .. worker or K.attempts
    if call('EXISTS', K.deadlines, K.attempts, prog) > 0 then
        call_many('ZREM', K.deadlines, e.ids)
        call_many('HDEL', K.attempts, e.ids)
        if worker then call_many('HDEL', prog, e.ids) end
    end
    for seg, by in pairs(e.segs) do refer(seg, by) end
    local sum = 0
    for bucket, into in pairs(e.into) do
        for seg, by in pairs(into.segs) do
            refer(seg, by)
            call('HINCRBY', K.seg_of .. bucket, seg, by)
        end
        call_many('HSET', K.rec_of .. bucket, into.records)
        call_many('HSET', K.out_of .. bucket, into.outs)
        call('HINCRBY', K.recbytes, bucket, whole(into.bytes))
        call('ZADD', K.recs, 'GT', floor(now / 1000000) + L.ttl[sub(bucket, 1, 1)] + 1, bucket)
        sum = sum + into.bytes
    end
    local total = call('HINCRBY', K.recbytes, 'total', whole(sum))
    if total > L.record_bytes then buckets_fit(total, 4) end
    for channel, told in pairs(e.told) do call('PUBLISH', channel, concat(told)) end
    return left
end

-- Ends a pending job without a worker; returns its record.
local function ending_add_terse(e, id, job, state, code, finder)
    local record = terse(id, job, state, code, finder)
    local piece = struct.pack('<I4', #record) .. id .. record
    ending_add(e, id, job, piece, 0, '')
    e.terse[#e.terse + 1] = {id, job.si}
    return record
end

-- Ends jobs whose deadline has passed; true where there may be more.
local function expire_due()
    local ids = call('ZRANGE', K.deadlines, '-inf', now_text, 'BYSCORE', 'LIMIT', 0, 100)
    if #ids == 0 then return false end
    local e, finder = ending_new(), running_finder(#ids)
    for i, stub in ipairs(get_many(K.pending, ids)) do
        if stub then
            ending_add_terse(e, ids[i], parse(stub), 'expired', 'deadline_exceeded', finder)
        end
    end
    ending_commit(e)
    call_many('ZREM', K.deadlines, ids)
    return #ids == 100
end

-- Meeting the demand of idle workers, leases, and giving back what dead ones held; housekeeping. Read next:
-- front_ends.lua.

-- Gives to idle workers what they asked for, now that so many entries of each class have come:
-- their turns' replies, each in the list at which its worker waits. A few at a time, for what
-- passes a list is written, and logged, once more. `fresh` as in claim_take. The worker whose turn it is has no
-- other demand than that, which is noted only now, for as a rule it will be idle again.
local HANDED = 8
local function serve(count, fresh)
    if K.asks then
        call('HDEL', K.idle, K.asks)
        K.asks = nil
    end
    local idle, left = call('HGETALL', K.idle), count[1] + count[2] + count[3]
    for i = 1, #idle, 2 do
        if left <= 0 then return end
        local name, class, most, room, label = idle[i], match(idle[i + 1],
                                                              '^([12]) (%d+) (%d[%d ]*) (%d %d+)$')
        if not class then
            call('HDEL', K.idle, name)
        elseif count[1] + count[class + 1] > 0 then
            local share = floor(2 * (left - 1) / (#idle - i + 1)) + 1
            local c = claim_new(tonumber(most), room, min(share, HANDED))
            claim_take(c, tonumber(class), 0, fresh)
            if c.count > 0 then
                call('HDEL', K.idle, name)
                claim_note(name, c.names, label, {})
                call_many('RPUSH', K.wake_of .. name, c.reply)
                left = left - c.entries
            end
        end
    end
end

-- Gives back what of the names is still pending, the first submitted at the head; `keep(id, job)`,
-- where given, says whether. Returns how many entries of each class.
local function give_back(names, keep)
    local lists, count, order, jobs = {}, {0, 0, 0}, {}, {}
    local found, metas = resolve(names)
    for i, meta in ipairs(metas) do order[i], jobs[i] = i, parse(meta) end
    table.sort(order, function(a, b)
        local us, other = tonumber(jobs[a].us), tonumber(jobs[b].us)
        return us < other or us == other and a < b
    end)
    for _, i in ipairs(order) do
        local job = jobs[i]
        if not keep or keep(found[i], job) then
            local list, class = lists[job.line] or {jobs = 0}, SI.class[job.si]
            lists[job.line], list[#list + 1], count[class] = list, found[i], count[class] + 1
            list.jobs = list.jobs + job.jobs
            Record.events.given_back(found[i], metas[i])
        end
    end
    for line, list in pairs(lists) do
        put_back(line, list)
        tally(line, list.jobs)
    end
    return count
end

-- Gives back all that the worker holds, and forgets it. What it had begun when it died has cost one attempt,
-- and is to run alone. `alive`: it gives this back itself.
local function recover(name, alive)
    local names, begun = holdings(name)
    local ids = {}
    for one in pairs(begun) do ids[#ids + 1] = one end
    open_batch_entries(names, begun)
    metas_alone(ids) -- of a batch entry single jobs may have begun: the others have not
    local e, finder = completion_new(), running_finder(1)
    local count = give_back(names, function(id, job)
        if alive or not (begun[id] or begun[sub(id, 1, BATCH_ENTRY)]) or
           call('HINCRBY', K.attempts, id, 1) < L.attempts then
            return true
        end
        completion_add_summary(e, id, job, 'failed', 'poisoned', finder)
    end)
    completion_commit(e)
    call('DEL', K.lease_of .. name, K.claims_of .. name, K.prog_of .. name, K.wake_of .. name)
    call('HDEL', K.workers, name)
    call('HDEL', K.idle, name)
    serve(count)
end

-- nil, or the error for a worker whose lease is not its own any more. What it has written since others took
-- back what it held goes with it.
local function lapsed(name, epoch)
    if call('GET', K.lease_of .. name) == epoch then return nil end
    if call('HEXISTS', K.workers, name) == 0 then call('DEL', K.claims_of .. name, K.prog_of .. name) end
    return redis.error_reply('LOST the lease of this worker has lapsed')
end

-- Idle workers beside waiting jobs: one that could not take them at once, as others were in its way.
local function serve_backlog()
    if call('HLEN', K.idle) == 0 then return end
    local count = {0, 0, 0}
    for line, jobs in pairs(waiting()) do
        local class = SI.class[sub(line, 1, 1)]
        count[class] = count[class] + jobs
    end
    serve(count)
end

local reroute_stranded
do

-- Jobs that were only sent to a class because it seemed the faster one, their frame (byte 13: the
-- device class their user asked for) saying any, and for which no worker of it has lived for
-- ALONE_US, are for whoever comes. All jobs of a batch entry asked for the same.
local ALONE_US = 5000000
local LOOK = 256 -- at so many names of each priority a time: frames are read for it
local function may_move(name, frame)
    local at = is_batch_entry(name) and RECORD_FRAME_HEAD or 0
    return sub(frame, at + 1, at + 4) == 'BLJF' and byte(frame, at + 14) == 0
end

-- Moves what a name in a list stands for, where it may: appends it to `moved`. How many jobs.
local function reroute_name(name, any, moved)
    local found, metas = resolve({name})
    local frames, jobs = get_many(K.frames, found), 0
    for i, one in ipairs(found) do
        if may_move(one, frames[i] or '') then
            moved[#moved + 1] = one
            jobs = jobs + parse(metas[i]).jobs
            call('HSET', K.pending, one, any .. sub(metas[i], 2))
        end
    end
    return jobs
end

-- A name that moves leaves a tombstone, so that those that stay keep their places.
local looked, looked_count = {}, 0 -- how far each list was looked at, by its key
local function reroute_line(line)
    local key, moved, jobs = line_key(line), {}, 0
    local si = sub(line, 1, 1)
    local any = SI[9 * SI.lane[si] - 9 + SI.priority[si]]
    if looked_count >= 1000 then looked, looked_count = {}, 0 end
    if not looked[key] then looked_count = looked_count + 1 end
    local from = looked[key] or 0
    if from >= call('LLEN', key) then from = 0 end
    looked[key] = from + LOOK
    for i, name in ipairs(call('LRANGE', key, from, from + LOOK - 1)) do
        local gone = reroute_name(name, any, moved)
        if gone > 0 then call('LSET', key, from + i - 1, '-') end
        jobs = jobs + gone
    end
    any = any .. sub(line, 2)
    call_many('RPUSH', line_key(any), moved)
    tally(line, -jobs)
    tally(any, jobs)
end

local function reroute(class, lines)
    local key = K.alone_of .. CLASSES[class]
    local since = tonumber(call('GET', key) or 0)
    if since == 0 then call('SET', key, now_text) end
    call('EXPIRE', key, 60)
    if since == 0 or now - since < ALONE_US then return end
    for _, line in ipairs(lines) do reroute_line(line) end
end

reroute_stranded = function(live)
    local of = {{}, {}, {}}
    for line, jobs in pairs(waiting()) do
        local class = of[SI.class[sub(line, 1, 1)]]
        if jobs > 0 then class[#class + 1] = line end
    end
    for class = 2, 3 do
        if live[class - 1] == 0 then
            if #of[class] > 0 then reroute(class, of[class]) end
        elseif call('EXISTS', K.alone_of .. CLASSES[class]) == 1 then
            call('DEL', K.alone_of .. CLASSES[class])
        end
    end
end

end

-- What only a damaged meta or batch entry can put out of step is counted anew. Lines, and shares, in which
-- nobody waits are forgotten; a share only once it makes no difference.
local function recount()
    local r = call('HSCAN', K.count, K.count_cursor or '0', 'COUNT', 100) -- some of very many at a time
    K.count_cursor = r[1]
    for i = 1, #r[2], 2 do
        local line = r[2][i]
        if byte(line, 2) == 32 then
            local names = call('LLEN', line_key(line))
            if (names == 0) ~= (tonumber(r[2][i + 1]) <= 0) then compact(line) end
            if names == 0 then call('HDEL', K.count, line) end
        end
    end
    if call('EXISTS', K.pending) == 0 then call('DEL', K.count, K.shares, K.used) end
    local shares, all = {}, call('HGETALL', K.shares)
    for i = 1, #all, 2 do shares[all[i]] = tonumber(all[i + 1]) end
    for field, had in pairs(shares) do
        local rank = match(field, '^(%S+) ')
        if rank and had <= (shares[rank] or 0) then call('HDEL', K.shares, field) end
    end
end

-- Forgets records whose time is over; how many blobs nobody refers to any more. As each second may bring
-- buckets of very many tenants, more go at a time where more are due, but not so many that others wait long.
local DUE_LEAST, DUE_MOST = 128, 512
local function expire_records()
    local blobs, second = 0, floor(now / 1000000)
    local most = min(max(DUE_LEAST, floor(call('ZCOUNT', K.recs, '-inf', second) / 2)), DUE_MOST)
    for _, bucket in ipairs(call('ZRANGE', K.recs, '-inf', second, 'BYSCORE', 'LIMIT', 0, most)) do
        blobs = blobs + bucket_drop(bucket)
    end
    return blobs
end

local function housekeeping()
    mind_clock()
    for _ = 1, 10 do
        if not expire_due() then break end
    end
    local workers, live = call('HGETALL', K.workers), {0, 0}
    for i = 1, #workers, 2 do
        if call('EXISTS', K.lease_of .. workers[i]) == 0 then
            recover(workers[i])
        else
            local class = tonumber(sub(workers[i + 1], 1, 1))
            live[class] = (live[class] or 0) + 1
        end
    end
    local blobs = expire_records()
    blobs = blobs + sync_fit() + Tensor.tick()
    recount()
    forget_opened()
    reroute_stranded(live)
    serve_backlog()
    local first = call('ZRANGE', K.deadlines, 0, 0, 'WITHSCORES')
    return {now, counted('jobs'), counted('bytes'), live[1], live[2], blobs,
            tonumber(first[2] or 0), kept_bytes('a') + counted('results'), call('GET', K.idkey) or ''}
end

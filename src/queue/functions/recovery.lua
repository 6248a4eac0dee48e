-- Meeting the demand of idle workers, leases, and giving back what dead ones held; housekeeping. Read next:
-- upgrade.lua.

-- Gives to idle workers what they asked for, now that so many entries of each class have come:
-- their turns' replies, each in the list at which its worker waits. A few at a time, for what
-- passes a list is written, and logged, once more. `fresh` as in claim_take.
local HANDED = 8
local function serve(count, fresh)
    local idle, left = call('HGETALL', K.idle), count[1] + count[2] + count[3]
    for i = 1, #idle, 2 do
        if left <= 0 then return end
        local name, class, most, room, label = idle[i], match(idle[i + 1],
                                                              '^([12]) (%d+) (%d+) (%d %d+)$')
        if not class then
            call('HDEL', K.idle, name)
        elseif count[1] + count[class + 1] > 0 then
            local share = floor(2 * (left - 1) / (#idle - i + 1)) + 1
            local c = claim_new(tonumber(most), tonumber(room), min(share, HANDED))
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
    local found, stubs = resolve(names)
    for i, stub in ipairs(stubs) do order[i], jobs[i] = i, parse(stub) end
    table.sort(order, function(a, b)
        local us, other = tonumber(jobs[a].us), tonumber(jobs[b].us)
        return us < other or us == other and a < b
    end)
    for _, i in ipairs(order) do
        local job = jobs[i]
        if not keep or keep(found[i], job) then
            local list, class = lists[job.si] or {jobs = 0}, CLASS_OF[job.si]
            lists[job.si], list[#list + 1], count[class] = list, found[i], count[class] + 1
            list.jobs = list.jobs + job.jobs
        end
    end
    for si, list in pairs(lists) do
        put_back(si, list)
        tally(si, list.jobs)
    end
    return count
end

-- Gives back all that the worker holds, and forgets it. What it had begun has cost one attempt, and
-- is to run alone.
local function recover(name)
    local names, begun = holdings(name)
    local ids = {}
    for one in pairs(begun) do ids[#ids + 1] = one end
    open_packets(names, begun)
    stubs_alone(ids) -- of a packet single jobs may have begun: the others have not
    local e, finder = ending_new(), running_finder(1)
    local count = give_back(names, function(id, job)
        if not (begun[id] or begun[sub(id, 1, PACKET)]) or
           call('HINCRBY', K.attempts, id, 1) < L.attempts then
            return true
        end
        ending_add_summary(e, id, job, 'failed', 'poisoned', finder)
    end)
    ending_commit(e)
    call('DEL', K.lease_of .. name, K.claims_of .. name, K.prog_of .. name, K.wake_of .. name)
    call('HDEL', K.workers, name)
    call('HDEL', K.idle, name)
    serve(count)
end

-- nil, or the error for a worker whose lease is not its own any more.
local function lapsed(name, epoch)
    if call('GET', K.lease_of .. name) == epoch then return nil end
    return redis.error_reply('LOST the lease of this worker has lapsed')
end

-- Idle workers beside waiting jobs: one that could not take them at once, as others were in its way.
local function serve_backlog()
    if call('HLEN', K.idle) == 0 then return end
    local count = {0, 0, 0}
    for si in pairs(K.wait) do
        local class = CLASS_OF[si]
        count[class] = count[class] + counted(si)
    end
    serve(count)
end

-- Whether jobs wait for a class.
local function class_waits(class)
    for p = 1, 3 do
        if counted(SI[(class - 1) * 3 + p]) > 0 then return true end
    end
    return false
end

-- Jobs that were only sent to a class because it seemed the faster one, their frame (byte 13: the
-- device class their user asked for) saying any, and for which no worker of it has lived for
-- ALONE_US, are for whoever comes. All jobs of a packet asked for the same.
local ALONE_US = 5000000
local LOOK = 256 -- at so many names of each priority a time: frames are read for it
local function may_move(name, frame)
    local at = is_packet(name) and PIECE_HEAD or 0
    return sub(frame, at + 1, at + 4) == 'BLJF' and byte(frame, at + 14) == 0
end

-- Moves what a name in a list stands for, where it may: appends it to `moved`. How many jobs.
local function reroute_name(name, any, moved)
    local found, stubs = resolve({name})
    local frames, jobs = get_many(K.frames, found), 0
    for i, one in ipairs(found) do
        if may_move(one, frames[i] or '') then
            moved[#moved + 1] = one
            jobs = jobs + parse(stubs[i]).jobs
            call('HSET', K.pending, one, any .. sub(stubs[i], 2))
        end
    end
    return jobs
end

-- A name that moves leaves a tombstone, so that those that stay keep their places.
local looked = {} -- how far each list was looked at, by its key
local function reroute_list(si, any)
    local key, moved, jobs = K.wait[si], {}, 0
    local from = looked[key] or 0
    if from >= call('LLEN', key) then from = 0 end
    looked[key] = from + LOOK
    for i, name in ipairs(call('LRANGE', key, from, from + LOOK - 1)) do
        local gone = reroute_name(name, any, moved)
        if gone > 0 then call('LSET', key, from + i - 1, '-') end
        jobs = jobs + gone
    end
    call_many('RPUSH', K.wait[any], moved)
    tally(si, -jobs)
    tally(any, jobs)
end

local function reroute(class)
    local key = K.alone_of .. CLASSES[class]
    local since = tonumber(call('GET', key) or 0)
    if since == 0 then call('SET', key, now_text) end
    call('EXPIRE', key, 60)
    if since == 0 or now - since < ALONE_US then return end
    for p = 1, 3 do reroute_list(SI[(class - 1) * 3 + p], SI[p]) end
end

local function reroute_stranded(live)
    for class = 2, 3 do
        if live[class - 1] == 0 then
            if class_waits(class) then reroute(class) end
        elseif call('EXISTS', K.alone_of .. CLASSES[class]) == 1 then
            call('DEL', K.alone_of .. CLASSES[class])
        end
    end
end

-- What only a damaged stub or packet can put out of step is counted anew.
local function recount()
    for si, list in pairs(K.wait) do
        if (call('LLEN', list) == 0) ~= (counted(si) == 0) then compact(si) end
    end
    if call('EXISTS', K.pending) == 0 then call('DEL', K.count) end
end

local function housekeeping()
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
    local blobs = 0
    local old = call('ZRANGE', K.recs, '-inf', floor(now / 1000000), 'BYSCORE', 'LIMIT', 0, 16)
    for _, bucket in ipairs(old) do blobs = blobs + bucket_drop(bucket) end
    blobs = blobs + sync_fit()
    recount()
    forget_opened()
    reroute_stranded(live)
    serve_backlog()
    local first = call('ZRANGE', K.deadlines, 0, 0, 'WITHSCORES')
    return {now, counted('jobs'), counted('bytes'), live[1], live[2], blobs,
            tonumber(first[2] or 0), kept_bytes('a'), call('GET', K.idkey) or ''}
end

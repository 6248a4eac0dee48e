-- Waking workers, their leases, and giving back what dead ones held; housekeeping. Read next:
-- front_ends.lua.

-- Gives an idle worker jobs, or just wakes it.
local function hand_over(name, asked, most, all)
    local class, max_jobs, room, turn, held = match(asked, '^(%d) (%d+) (%d+) (%d+) ?(.*)$')
    local reply = {'1'}
    if class then
        local c = claim_take(name, tonumber(class), min(most, tonumber(max_jobs)), tonumber(room),
                             tonumber(turn), held, all)
        if c.count > 0 then
            reply = c.reply
            reply[1] = now_text
        end
    end
    call_many('RPUSH', K.wake_of .. name, reply)
end

-- Wakes idle workers for that many new jobs of each class. `new`: how many jobs there are, where
-- they are handed over if they are few (what passes a list is written, and logged, once more);
-- `all` as in claim_take.
local HANDED = 8
local function wake(any, cpu, cuda, new, all)
    local idle = call('HGETALL', K.idle)
    for i = 1, #idle, 2 do
        local name, class, fits = idle[i], sub(idle[i + 1], 1, 1), true
        if class == '1' and cpu > 0 then
            cpu = cpu - 1
        elseif class == '2' and cuda > 0 then
            cuda = cuda - 1
        elseif any > 0 then
            any = any - 1
        else
            fits = false
        end
        if fits then
            call('HDEL', K.idle, name)
            if new and new <= HANDED then
                hand_over(name, idle[i + 1], floor((2 * new - 1) / #idle) + 1, all) -- its share
            else
                call('RPUSH', K.wake_of .. name, '1')
            end
        end
    end
end

-- Gives back all that the worker holds, and forgets it. What it had begun has cost one attempt.
local function recover(name)
    local begun, ids, seen = {}, {}, {}
    for line in gmatch(call('GET', K.run_of .. name) or '', '[^\n]+') do
        for id in gmatch(match(line, '^%d+(.*)$') or '', '%S+') do
            begun[id] = true
            if not seen[id] then seen[id], ids[#ids + 1] = true, id end
        end
    end
    for id in gmatch(call('GET', K.held_of .. name) or '', '%S+') do
        if not seen[id] then seen[id], ids[#ids + 1] = true, id end
    end
    local e, finder, count = ending_new(), running_finder(1), {0, 0, 0}
    for i, stub in ipairs(get_many(K.pending, ids)) do
        if stub then
            local id, job = ids[i], parse(stub)
            if begun[id] and call('HINCRBY', K.attempts, id, 1) >= L.attempts then
                ending_add_terse(e, id, job, 'failed', 'poisoned', finder)
            else
                redo(job)
                count[CLASS_OF[job.si]] = count[CLASS_OF[job.si]] + 1
            end
        end
    end
    ending_commit(e)
    call('DEL', K.lease_of .. name, K.held_of .. name, K.run_of .. name, K.prog_of .. name,
         K.wake_of .. name)
    call('HDEL', K.workers, name)
    call('HDEL', K.idle, name)
    if count[1] + count[2] + count[3] > 0 then wake(count[1], count[2], count[3]) end
end

-- nil, or the error for a worker whose lease is not its own any more.
local function lapsed(name, epoch)
    if call('GET', K.lease_of .. name) == epoch then return nil end
    return redis.error_reply('LOST the lease of this worker has lapsed')
end

local function make_groups()
    for _, stream in pairs(K.s) do redis.pcall('XGROUP', 'CREATE', stream, 'w', '0', 'MKSTREAM') end
end

-- Whether a stream holds entries that nobody has been given.
local function has_backlog(stream)
    local groups = redis.pcall('XINFO', 'GROUPS', stream)
    if groups.err or not groups[1] then return false end
    local last
    for i = 1, #groups[1], 2 do
        if groups[1][i] == 'last-delivered-id' then last = groups[1][i + 1] end
    end
    return #call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1) > 0
end

-- Idle workers beside waiting jobs are a mistake that nothing here makes, but a worker can die
-- between being woken and claiming.
local function wake_for_backlog()
    if call('HLEN', K.idle) == 0 then return end
    local count = {0, 0, 0}
    for si, stream in pairs(K.s) do
        local class = CLASS_OF[si]
        if has_backlog(stream) then count[class] = count[class] + 1 end
    end
    for class = 1, 3 do count[class] = count[class] + call('LLEN', K.redo[tostring(class * 3)]) end
    wake(count[1], count[2], count[3])
end

-- Whether jobs wait in the streams of a class.
local function class_waits(class)
    for p = 1, 3 do
        if call('XLEN', K.s[tostring((class - 1) * 3 + p)]) > 0 then return true end
    end
    return false
end

-- What no worker of the class has been given yet goes to its redo list, in order.
local function deliver_to_redo(si)
    for _ = 1, 8 do
        local r = call('XREADGROUP', 'GROUP', 'w', 'w', 'COUNT', 32, 'NOACK', 'STREAMS', K.s[si],
                       '>')
        if not r then return end
        for _, e in ipairs(r[1][2]) do redo({si = si, entry = e[1]}) end
    end
end

-- Jobs that were only sent to a class because it seemed the faster one, their frame (byte 13: the
-- device class their user asked for) saying any, and for which no worker of it has lived for
-- ALONE_US, are for whoever comes.
local ALONE_US = 5000000
local function reroute(class)
    local key = K.alone_of .. CLASSES[class]
    local since = tonumber(call('GET', key) or 0)
    if since == 0 or now - since < ALONE_US then
        if since == 0 then call('SET', key, now_text) end
        call('EXPIRE', key, 60)
        return
    end
    call('EXPIRE', key, 60)
    local list, any = K.redo[tostring(class * 3)], K.redo['1']
    for p = 1, 3 do deliver_to_redo(tostring((class - 1) * 3 + p)) end
    for _ = 1, min(call('LLEN', list), 256) do
        local item = call('LPOP', list)
        local si, entry = match(item, '^(%d) (%S+)$')
        local found = call('XRANGE', K.s[si], entry, entry)[1] -- none: the job has ended meanwhile
        if found then
            local frame = found[2][4]
            local wish = frame and sub(frame, 1, 4) == 'BLJF' and byte(frame, 14)
            call('RPUSH', wish == 0 and any or list, item)
        end
    end
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
    local total = tonumber(call('HGET', K.recbytes, 'total') or 0)
    if total > L.record_sync_bytes then blobs = blobs + buckets_fit_sync() end
    if total > L.record_bytes then blobs = blobs + buckets_fit(total, 64) end
    reroute_stranded(live)
    wake_for_backlog()
    local first = call('ZRANGE', K.deadlines, 0, 0, 'WITHSCORES')
    return {now, call('HLEN', K.pending), tonumber(call('GET', K.bytes) or 0), live[1], live[2],
            blobs, tonumber(first[2] or 0)}
end

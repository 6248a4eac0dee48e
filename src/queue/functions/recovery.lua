-- Meeting the demand of idle workers, leases, and giving back what dead ones held; housekeeping. Read next:
-- front_ends.lua.

-- Gives to idle workers what they asked for, now that so many entries of each class have come:
-- their turns' replies, each in the list at which its worker waits. A few at a time, for what
-- passes a list is written, and logged, once more. `fresh` and `si` as in claim_take.
local HANDED = 8
local function serve(count, fresh, si)
    local left, workers, idle, at = count[1] + count[2] + count[3], 0, S.idle, 1
    if idle == '' or left <= 0 then return end
    local line_end = find(idle, '\n', 1, true)
    while line_end do workers, line_end = workers + 1, find(idle, '\n', line_end + 1, true) end
    while at and left > 0 do
        local to = find(idle, '\n', at, true)
        local name, thread, seq, demand = Idle.read(sub(idle, at, to or -1))
        local class = demand and demand.class
        if not class then
            S.idle, at = '', nil -- what nothing here has written; workers tell it again
        elseif count[1] + count[class + 1] > 0 and (fresh or has_waiting(class)) then
            local c = claim_new(demand, left == 1 and 1 or min(floor((left - 1) / workers) + 1, HANDED))
            claim_take(c, class, 0, fresh, si)
            if c.count > 0 then
                Idle.drop(name)
                claim_note(name, c.names, thread .. ' ' .. seq, {'$', seq, nil, nil})
                call_many('RPUSH', K.wake_of .. name, c.reply)
                left = left - c.entries
            end
        end
        at, workers = at and to < #idle and to + 1, workers - 1
    end
end

-- Gives back what of the names is still pending, the first submitted at the head; `keep(id, job, meta)`,
-- where given, says whether, by the meta as it then is. Returns how many entries of each class.
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
        if keep then metas[i] = keep(found[i], job, metas[i]) end
        if metas[i] then
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
    local count = give_back(names, function(id, job, meta)
        if alive or not (begun[id] or begun[sub(id, 1, BATCH_ENTRY)]) then return meta end
        local began = (job.attempts or 0) + 1
        local head, rest = match(meta, '^([^\t]*)(\t.*)$')
        if head then meta = gsub(head, ' n%d+', '') .. ' n' .. began .. rest end
        if began < L.attempts then
            call('HSET', K.pending, id, meta)
            return meta
        end
        job = parse(meta)
        completion_add_summary(e, id, job, 'failed', 'poisoned', finder)
        return nil
    end)
    completion_commit(e)
    call('DEL', K.claims_of .. name, K.wake_of .. name)
    local fields = {}
    for thread = 0, 9 do fields[thread + 1] = 't:' .. name .. ':' .. thread end
    call_many('HDEL', K.state, fields)
    call('HDEL', K.workers, name)
    Idle.drop(name)
    serve(count)
end

-- nil, or the error for a worker whose lease is not its own any more. What it has written since others took
-- back what it held goes with it. `lease`: the field of what it holds, where that has been read.
local function lapsed(name, epoch, lease)
    if is_alive(name, epoch, lease) then return nil end
    if call('HEXISTS', K.workers, name) == 0 then call('DEL', K.claims_of .. name) end
    return redis.error_reply('LOST the lease of this worker has lapsed')
end

-- Idle workers beside waiting jobs: one that could not take them at once, as others were in its way.
local function serve_backlog()
    if S.idle == '' then return end
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
    local frames, jobs = frames_of(found), 0
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
    local field = 'alone' .. class
    if S[field] == 0 then State.set(field, now) end
    if now - S[field] < ALONE_US then return end
    for _, line in ipairs(lines) do reroute_line(line) end
end

reroute_stranded = function(live)
    local of, sum = {{}, {}, {}}, {0, 0, 0}
    for line, jobs in pairs(waiting()) do
        local class = SI.class[sub(line, 1, 1)]
        sum[class] = sum[class] + jobs
        if jobs > 0 then of[class][#of[class] + 1] = line end
    end
    for class = 1, 3 do State.set('waits' .. class, sum[class]) end
    for class = 2, 3 do
        if live[class - 1] == 0 and #of[class] > 0 then
            reroute(class, of[class])
        else
            State.set('alone' .. class, 0)
        end
    end
end

end

-- What only a damaged meta or batch entry can put out of step is counted anew. Lines, and shares, in which
-- nobody waits are forgotten; a share only once it makes no difference.
local function recount()
    local r = call('HSCAN', K.lines, K.lines_cursor or '0', 'COUNT', 100) -- some of very many at a time
    K.lines_cursor = r[1]
    for i = 1, #r[2], 2 do
        local line = r[2][i]
        local names = call('LLEN', line_key(line))
        if (names == 0) ~= (tonumber(r[2][i + 1]) <= 0) then compact(line) end
        if names == 0 then
            tally(line, -tonumber(call('HGET', K.lines, line) or 0))
            call('HDEL', K.lines, line)
        end
    end
    if call('EXISTS', K.pending) == 0 then
        call('DEL', K.lines, K.shares, K.used)
        S.jobs, S.bytes, S.results = 0, 0, 0
        for _, field in ipairs({'shared', 'waits1', 'waits2', 'waits3'}) do State.set(field, 0) end
    end
    local shares, all = {}, call('HGETALL', K.shares)
    for i = 1, #all, 2 do shares[all[i]] = tonumber(all[i + 1]) end
    for field, had in pairs(shares) do
        local rank = match(field, '^(%S+) ')
        if rank and had <= (shares[rank] or 0) then call('HDEL', K.shares, field) end
    end
end

-- Forgets front ends that have sent nothing for a week, which is longer than Redis' clock may leap while a call is
-- sent again: some fields at a time.
local SENT_S = 604800
local function forget_fronts()
    local r = call('HSCAN', K.state, K.state_cursor or '0', 'COUNT', 100)
    K.state_cursor = r[1]
    for i = 1, #r[2], 2 do
        local second = sub(r[2][i], 1, 2) == 's:' and match(r[2][i + 1], ' (%d+)$')
        if second and tonumber(second) + SENT_S < now / 1000000 then call('HDEL', K.state, r[2][i]) end
    end
end

-- Where Redis' clock has gone back, time goes on from where it was, at half its speed until the clock has come
-- there, too. What expires by itself does so by the clock, and is not to wait for it.
local SEEN_US = 1000000 -- how long it is before the time is noted again
local function mind_clock()
    local t = call('TIME')
    local is = tonumber(t[1]) * 1000000 + tonumber(t[2])
    if is + S.offset < S.clock then
        State.set('offset', S.clock - is)
        for _, key in ipairs({K.sweeping, K.sweeping .. ':at_work'}) do call('PEXPIRE', key, 10000, 'LT') end
    elseif now - S.clock > SEEN_US then
        State.set('offset', S.offset - min(S.offset, SEEN_US / 2))
        State.set('clock', now)
    end
end

local function housekeeping()
    mind_clock()
    for _ = 1, 10 do
        if not expire_due() then break end
    end
    local workers, live = call('HGETALL', K.workers), {0, 0}
    for i = 1, #workers, 2 do
        if not is_alive(workers[i]) then
            recover(workers[i])
        else
            local class = tonumber(sub(workers[i + 1], 1, 1))
            live[class] = (live[class] or 0) + 1
        end
    end
    local blobs = Kept.tick() + Tensor.tick()
    recount()
    forget_opened()
    reroute_stranded(live)
    serve_backlog()
    forget_fronts()
    local first = call('ZRANGE', K.deadlines, 0, 0, 'WITHSCORES')
    return {now, S.jobs, S.bytes, live[1], live[2], blobs,
            tonumber(first[2] or 0), S.kept_a + S.results, call('HGET', K.state, 'idkey') or ''}
end

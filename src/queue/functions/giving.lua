-- Giving jobs to a worker: what claim and a hand-over share. Read next: recovery.lua.

-- Puts a job back at the head of its class; wakes nobody.
local function redo(job)
    call('RPUSH', K.redo[job.si], job.si .. ' ' .. job.entry)
end

-- One claim in the making.
local function claim_add(c, id, j, frame, cost)
    local n, reply = c.count + 1, c.reply
    c.count = n
    c.room = c.room - cost
    c.frames = c.frames + #frame
    c.held[n + 1] = id -- after HELD
    reply[2 * n], reply[2 * n + 1] = j, frame -- after now_us
    if c.frames > 33554432 then c.full = true end
end

local function claim_redo(c, key)
    while c.count < c.most and not c.full do
        local item = call('LPOP', key)
        if not item then return end
        local si, entry = match(item, '^(%d) (%S+)$')
        local found = call('XRANGE', K.s[si], entry, entry)[1] -- none: the job has ended meanwhile
        if found then
            local j, frame = found[2][2], found[2][4]
            local id, cost = match(j, '^(%S+) %d+ (%d+)')
            cost = tonumber(cost)
            if cost > c.room and c.count > 0 then
                call('LPUSH', key, item)
                c.full = true
            else
                claim_add(c, id, j .. ' ' .. (call('HGET', K.attempts, id) or '0'), frame, cost)
            end
        end
    end
end

-- Takes up to `quota` new jobs from one stream. What was read beyond the bytes goes to the redo
-- list, so it reads no more than will fit if jobs are of average size.
local function claim_stream(c, si, quota)
    if c.only and not c.only[si] then return end
    while quota > 0 and c.count < c.most and not c.full do
        local n = max(1, min(quota, c.most - c.count, 512, floor(c.room / c.mean)))
        local r = call('XREADGROUP', 'GROUP', 'w', 'w', 'COUNT', n, 'NOACK', 'STREAMS', K.s[si],
                       '>')
        if not r then return end
        local entries = r[1][2]
        for _, e in ipairs(entries) do
            local j, frame = e[2][2], e[2][4]
            local id, cost = sub(j, 1, 41), 0
            if c.tight then cost = tonumber(match(j, '^%d+ (%d+)', 43)) or 0 end
            if not frame or not bucket_of(id) or not find(j, '^ %d+ %d+ [01]$', 42) then
                -- not an entry of ours
                call('XDEL', K.s[si], e[1])
            elseif c.full or (cost > c.room and c.count > 0) then
                c.full = true
                redo({si = si, entry = e[1]})
            else
                claim_add(c, id, j, frame, cost)
            end
        end
        if #entries < n then return end
        quota = quota - n
    end
end

-- Gives jobs to the worker: what claim replies with is then in the result's `reply`, and its `held`
-- are noted. `room` in bytes; `held` are the ids it has already. `all`: nil, or {jobs, bytes, a set
-- of SI} where these are all that is pending, in the streams of that set and given to nobody.
local function claim_take(name, class, most, room, turn, held, all)
    local jobs = all and all.jobs or call('HLEN', K.pending)
    local bytes = all and all.bytes or tonumber(call('GET', K.bytes) or 0)
    local c = {most = most, room = room, mean = max(1, bytes / max(jobs, 1)), tight = bytes > room,
               count = 0, frames = 0, full = false, held = {held}, reply = {now}, only = all and all.streams}
    local own, any = class * 3, 0
    if jobs == 0 then return c end
    if not all and call('EXISTS', K.redo[tostring(own + 1)], K.redo['1']) > 0 then
        claim_redo(c, K.redo[tostring(own + 1)])
        claim_redo(c, K.redo['1'])
    end
    -- Ageing: of each eight claims one gives normal, and one low, the first half.
    local aged = turn % 8 == 3 and 2 or turn % 8 == 7 and 3 or nil
    if aged then
        local half = floor((c.most + 1) / 2)
        claim_stream(c, tostring(own + aged), half)
        claim_stream(c, tostring(any + aged), half - min(half, c.count))
    end
    for p = 1, 3 do
        claim_stream(c, tostring(own + p), c.most)
        claim_stream(c, tostring(any + p), c.most)
    end
    if c.count > 0 then call('SET', K.held_of .. name, concat(c.held, ' ')) end
    return c
end

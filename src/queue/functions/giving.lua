-- Giving jobs to a worker: what claim and a hand-over share. Read next: recovery.lua.

-- Puts jobs back at the head of their list, in order; wakes nobody.
local function put_back(si, ids)
    local turned, n = {}, #ids
    for i = 1, n do turned[i] = ids[n + 1 - i] end
    call_many('LPUSH', K.wait[si], turned)
end

-- One claim in the making. ATTEMPTS: nil for a job that is delivered for the first time.
local function claim_add(c, id, job, frame, attempts)
    local n, reply = c.count + 1, c.reply
    c.count = n
    c.room = c.room - job.cost
    c.frames = c.frames + #frame
    c.held[n + 1] = id -- after HELD
    reply[2 * n], reply[2 * n + 1] = id .. job.claim, frame -- after now_us
    if attempts then reply[2 * n] = reply[2 * n] .. ' ' .. attempts end
    if c.frames > 33554432 then c.full = true end
end

local function claim_fits(c, job)
    if job.cost > c.room and c.count > 0 then c.full = true end
    return not c.full
end

-- Takes up to `quota` jobs from one list. What was read beyond the bytes goes back, so it reads no
-- more than will fit if jobs are of average size.
local function claim_list(c, si, quota)
    while quota > 0 and c.count < c.most and not c.full do
        local n = max(1, min(quota, c.most - c.count, 512, floor(c.room / c.mean)))
        local ids = call('LPOP', K.wait[si], n)
        if not ids then return end
        local stubs, frames = get_many(K.pending, ids), get_many(K.frames, ids)
        local attempts, ghosts, back = c.again and get_many(K.attempts, ids) or {}, 0, {}
        local before = c.count
        for i, id in ipairs(ids) do
            local job = stubs[i] and parse(stubs[i])
            if not job then
                ghosts = ghosts + 1
            elseif claim_fits(c, job) then
                claim_add(c, id, job, frames[i] or '', attempts[i])
            else
                back[#back + 1] = id
            end
        end
        put_back(si, back)
        if ghosts > 0 and call('HINCRBY', K.ghosts, si, -ghosts) <= 0 then
            call('HDEL', K.ghosts, si)
        end
        if #ids < n then return end
        quota = quota - (c.count - before)
    end
end

-- The same from jobs that have just been submitted and are in no list yet.
local function claim_fresh(c, si, quota)
    local fresh = c.fresh
    local list, first = fresh.lists[si], fresh.first[si] or 1
    if not list then return end
    for i = 2, #fresh.stubs, 2 do -- in the order of the list
        if quota <= 0 or c.count >= c.most or not list[first] then break end
        if fresh.stubs[i - 1] == list[first] then
            local job = parse(fresh.stubs[i])
            if not claim_fits(c, job) then break end
            claim_add(c, list[first], job, fresh.frames[i], nil)
            first, quota = first + 1, quota - 1
        end
    end
    fresh.first[si] = first
end

-- Gives jobs to the worker: what claim replies with is then in the result's `reply`, and its `held`
-- are noted. `room` in bytes; `held` are the ids it has already. `fresh`: nil, or, where these are
-- all that is pending and are in no list yet, {lists = ids by SI, stubs and frames, each behind its
-- id, first = by SI, the first that nobody was given}.
local function claim_take(name, class, most, room, turn, held, fresh)
    local jobs = fresh and 1 or call('HLEN', K.pending)
    local c = {most = most, room = room, count = 0, frames = 0, full = false, held = {held},
               reply = {now}, fresh = fresh}
    if jobs == 0 then return c end
    local take, own, any = claim_fresh, class * 3, 0
    if not fresh then
        take = claim_list
        c.mean = max(1, tonumber(call('GET', K.bytes) or 0) / jobs)
        c.again = call('EXISTS', K.attempts) == 1
    end
    -- Ageing: of each eight claims one gives normal, and one low, the first half.
    local aged = turn % 8 == 3 and 2 or turn % 8 == 7 and 3 or nil
    if aged then
        local half = floor((c.most + 1) / 2)
        take(c, tostring(own + aged), half)
        take(c, tostring(any + aged), half - min(half, c.count))
    end
    for p = 1, 3 do
        take(c, tostring(own + p), c.most)
        take(c, tostring(any + p), c.most)
    end
    if c.count > 0 then call('SET', K.held_of .. name, concat(c.held, ' ')) end
    return c
end

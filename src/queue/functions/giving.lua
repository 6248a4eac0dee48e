-- Giving jobs to a worker: what claim and a hand-over share. Read next: recovery.lua.

-- Puts names back at the head of their list, in order; wakes nobody.
local function put_back(si, names)
    local turned, n = {}, #names
    for i = 1, n do turned[i] = names[n + 1 - i] end
    call_many('LPUSH', K.wait[si], turned)
end

-- One claim in the making. ATTEMPTS: nil for a job that is delivered for the first time.
local function claim_add(c, name, job, frame, attempts)
    local n, reply = c.entries + 1, c.reply
    c.entries, c.count = n, c.count + job.jobs
    c.room = c.room - job.jobs * job.cost
    c.frames = c.frames + #frame
    c.held[n + 1] = name -- after HELD
    reply[2 * n], reply[2 * n + 1] = name .. job.claim, frame -- after now_us
    if attempts then reply[2 * n] = reply[2 * n] .. ' ' .. attempts end
    if c.frames > 33554432 then c.full = true end
end

-- Whether it may be given, too, where the list may give `quota` jobs yet.
local function claim_fits(c, job, quota)
    if c.entries >= c.share or
       c.count > 0 and (job.jobs * job.cost > c.room or c.count + job.jobs > c.most) then
        c.full = true
    end
    return not c.full and job.jobs <= quota
end

-- What lies behind names taken from a list: entries {name, job, frame, attempts}, none for
-- ghosts. Packets that a claim of its size might never have room for are opened.
local function look_up(c, names)
    local found, stubs = resolve(names)
    local opened = false
    for i, stub in ipairs(stubs) do
        if parse(stub).jobs > max(1, c.most / 2) then
            open_packet(found[i], stub)
            opened = true
        end
    end
    if opened then found, stubs = resolve(names) end
    local frames, attempts = get_many(K.frames, found), c.again and get_many(K.attempts, found) or {}
    local entries = {}
    for i, stub in ipairs(stubs) do
        entries[i] = {found[i], parse(stub), frames[i] or '', attempts[i]}
    end
    return entries
end

-- Takes up to `quota` jobs from one list. What was read beyond the bytes goes back, so it reads no
-- more than will fit if jobs are of average size.
local function claim_list(c, si, quota)
    local jobs, given = tonumber(c.counts[si] or 0), 0
    if jobs <= 0 then return end
    local names_a_job = call('LLEN', K.wait[si]) / jobs
    while quota > 0 and c.count < c.most and not c.full do
        local want = min(quota, c.most - c.count, 512, floor(c.room / c.mean))
        if given > 0 and want * names_a_job < 0.5 then break end -- a packet would not fit any more
        local n = max(1, floor(want * min(1, names_a_job)))
        local names = call('LPOP', K.wait[si], n)
        if not names then break end
        local back = {}
        for _, entry in ipairs(look_up(c, names)) do
            local job = entry[2]
            if #back == 0 and claim_fits(c, job, quota) then
                claim_add(c, unpack(entry, 1, 4))
                given, quota = given + job.jobs, quota - job.jobs
            else
                back[#back + 1] = entry[1]
            end
        end
        put_back(si, back)
        if #names < n or #back > 0 then break end
    end
    tally(si, -given)
end

-- The same from what has just been submitted and is in no list yet.
local function claim_fresh(c, si, quota)
    for _, entry in ipairs(c.fresh) do -- in the order of the list
        if quota <= 0 or c.count >= c.most then break end
        if entry.si == si and not entry.given then
            local job = parse(entry.stub)
            if not claim_fits(c, job, quota) then break end
            claim_add(c, entry.name, job, entry.frame, nil)
            entry.given, quota = true, quota - job.jobs
        end
    end
end

-- Gives jobs to the worker: what claim replies with is then in the result's `reply`, and its `held`
-- are noted. `room` in bytes; `held` are the names it has already; `share`: entries at the most.
-- `fresh`: nil, or, where these are all that is pending and are in no list yet, what was submitted:
-- {name, stub, frame, si, given = true once a worker has it}.
local function claim_take(name, class, most, room, turn, held, share, fresh)
    local c = {most = most, room = room, share = share, count = 0, entries = 0, frames = 0,
               full = false, held = {held}, reply = {now}, fresh = fresh}
    local take, own, any = claim_fresh, class * 3, 0 -- SI before that class' first
    if not fresh then
        if call('EXISTS', K.pending) == 0 then return c end
        local counts, all = {}, call('HGETALL', K.count)
        for i = 1, #all, 2 do counts[all[i]] = all[i + 1] end
        take, c.counts = claim_list, counts
        c.mean = max(1, tonumber(counts.bytes or 0) / max(1, tonumber(counts.jobs or 1)))
        c.again = call('EXISTS', K.attempts) == 1
    end
    -- Ageing: of each eight claims one gives normal, and one low, the first half.
    local aged = turn % 8 == 3 and 2 or turn % 8 == 7 and 3 or nil
    if aged then
        local half = floor((c.most + 1) / 2)
        take(c, SI[own + aged], half)
        take(c, SI[any + aged], half - min(half, c.count))
    end
    for p = 1, 3 do
        take(c, SI[own + p], c.most)
        take(c, SI[any + p], c.most)
    end
    if c.count > 0 then call('SET', K.held_of .. name, concat(c.held, ' ')) end
    return c
end

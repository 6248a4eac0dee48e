-- Giving jobs to a worker: what its turn and its demand's being met share. Read next: recovery.lua.

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
    c.names[n] = name
    reply[2 * n + 1], reply[2 * n + 2] = name .. job.claim, frame -- after now_us and the digits
    if attempts then reply[2 * n + 1] = reply[2 * n + 1] .. ' ' .. attempts end
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
-- tombstones. Packets that a claim of its size might never have room for are opened.
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
    if c.again == nil then c.again = call('EXISTS', K.attempts) == 1 end
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

-- For at most so many jobs, bytes and entries.
local function claim_new(most, room, share)
    return {most = most, room = room, share = share, count = 0, entries = 0, frames = 0,
            full = false, names = {}, reply = {now_text, ''}, fresh = nil, again = nil}
end

-- Gives a worker of that class what it may have. `turn` drives ageing. `fresh`: nil, or, where
-- these are all that is pending and are in no list yet, what was submitted:
-- {name, stub, frame, si, given = true once a worker has it}.
local function claim_take(c, class, turn, fresh)
    local take, own, any = claim_fresh, class * 3, 0 -- SI before that class' first
    c.fresh = fresh
    if not fresh then
        if call('EXISTS', K.pending) == 0 then return end
        local counts, all = {}, call('HGETALL', K.count)
        for i = 1, #all, 2 do counts[all[i]] = all[i + 1] end
        take, c.counts = claim_list, counts
        c.mean = max(1, tonumber(counts.bytes or 0) / max(1, tonumber(counts.jobs or 1)))
    end
    -- Ageing: of each eight turns one gives normal, and one low, the first half.
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
end

-- Notes that the worker has these now, from the turn that `label` names, "THREAD SEQ"; `fields`:
-- what else is to be written there.
local function claim_note(worker, names, label, fields)
    local n = #fields
    for i = 1, #names do fields[n + 2 * i - 1], fields[n + 2 * i] = names[i], label end
    call_many('HSET', K.claims_of .. worker, fields)
end

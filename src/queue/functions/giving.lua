-- Giving jobs to a worker: what its turn and its demand's being met share; whose turn it is, where
-- jobs of more than one tenant wait. Read next: recovery.lua.

-- Puts names back at the head of their line, in order; wakes nobody.
local function put_back(line, names)
    local turned, n = {}, #names
    for i = 1, n do turned[i] = names[n + 1 - i] end
    call_many('LPUSH', line_key(line), turned)
end

-- One claim in the making.
local function claim_add(c, name, job, frame)
    local n, reply = c.entries + 1, c.reply
    c.entries, c.count = n, c.count + job.jobs
    c.room = c.room - job.jobs * job.cost
    local lane = SI.lane[job.si]
    c.us[lane] = lane == #LANES and c.us[lane] < math.huge and 0 or c.us[lane] - job.jobs * job.time
    c.frames = c.frames + #frame
    c.names[n] = name
    local head = name .. job.claim
    if job.metered then head = head .. '\t' .. job.tenant end
    reply[2 * n + 1], reply[2 * n + 2] = head, frame -- after now_us and the digits
    if c.frames > 33554432 then c.full = true end
end

-- Whether it may be given, too, where the list may give `quota` jobs yet: its lane must have time for it. Who
-- says how much has of long jobs one.
local function claim_fits(c, job, quota)
    if c.entries >= c.share or
       c.count > 0 and (job.jobs * job.cost > c.room or c.count + job.jobs > c.most) then
        c.full = true
    end
    return not c.full and job.jobs <= quota and job.jobs * job.time <= c.us[SI.lane[job.si]]
end

-- What lies behind names taken from a list: entries {name, job, frame}, none for
-- tombstones. Batch entries that a claim of its size might never have room for are opened.
local function look_up(c, names)
    local found, metas = resolve(names)
    local opened = false
    for i, meta in ipairs(metas) do
        if parse(meta).jobs > max(1, c.most / 2) then
            open_batch_entry(found[i], meta)
            opened = true
        end
    end
    if opened then found, metas = resolve(names) end
    local frames, entries = frames_of(found), {}
    for i, meta in ipairs(metas) do entries[i] = {found[i], parse(meta), frames[i] or ''} end
    return entries
end

-- Takes up to `quota` jobs from one line, and none where `share` of work is used up; returns how
-- many, and their work. What was read beyond the bytes or the share goes back, so it reads no more
-- than will fit if jobs are of average size, and few at first where there is a share.
local AT_ONCE, FIRST = 512, {512, 4, 1} -- names of each lane
local function claim_line(c, line, quota, share)
    local lane = SI.lane[sub(line, 1, 1)]
    local step = share < math.huge and min(8, FIRST[lane]) or FIRST[lane]
    local jobs, given, work = c.lines[line] or 0, 0, 0
    if jobs <= 0 or c.us[lane] <= 0 then return 0, 0 end
    local key, back, fits, names_a_job = line_key(line), {}, true, nil
    while quota > 0 and c.count < c.most and work < share and not c.full do
        names_a_job = names_a_job or call('LLEN', key) / jobs
        local want = min(quota, c.most - c.count, step, floor(c.room / c.mean))
        if given > 0 and want * names_a_job < 0.5 then break end -- a batch entry would not fit any more
        local n = max(1, floor(want * min(1, names_a_job)))
        local names = call('LPOP', key, n)
        if not names then break end
        for _, entry in ipairs(look_up(c, names)) do
            local job = entry[2]
            fits = fits and work < share and claim_fits(c, job, quota)
            if fits then
                claim_add(c, unpack(entry, 1, 3))
                given, quota = given + job.jobs, quota - job.jobs
                work = work + job.jobs * work_of(job)
            else
                back[#back + 1] = entry[1]
            end
        end
        if #names < n or not fits then break end
        step = min(2 * step, AT_ONCE)
    end
    put_back(line, back)
    tally(line, -given)
    c.lines[line] = jobs - given
    return given, work
end

-- The same from what has just been submitted and is in no list yet.
local function claim_fresh(c, si, quota)
    for _, entry in ipairs(c.fresh) do -- in the order of the list
        if quota <= 0 or c.count >= c.most then break end
        if entry.like.si == si and not entry.given then
            local job = parse(entry.meta)
            if not claim_fits(c, job, quota) then break end
            claim_add(c, entry.name, job, entry.frame)
            entry.given, quota = true, quota - job.jobs
        end
    end
end

-- The places that a worker of that class is given of, of one priority: quick ones first, of each lane those of
-- its own class before those of any.
local function places_of(class, priority)
    local key = -3 * class - priority
    if not SI[key] then
        SI[key] = {}
        for lane = 0, #LANES - 1 do
            table.insert(SI[key], SI[9 * lane + class * 3 + priority])
            table.insert(SI[key], SI[9 * lane + priority])
        end
    end
    return SI[key]
end

local SHARED_US = 10000000 -- after jobs of several tenants have waited, claims stay small for so long
local claim_rank
do

-- Whose jobs a worker is given where those of several tenants wait. Of each rank, a priority and a
-- class of workers, {q}:shares knows the work that each was given while others waited, too: who had
-- least comes first, and each is given what puts it QUANTUM ahead of that. Who was away comes back
-- where the least of those stands that were not. So that whoever comes next need not wait long, a
-- worker is given no more at once, and for SHARED_US longer.
local QUANTUM = 1000 -- us of work

-- The ring in the order in which it is served; `had` is what each was given.
local function ring_sort(rank, ring)
    local fields = {rank}
    for i, one in ipairs(ring) do fields[i + 1] = rank .. ' ' .. one.tenant end
    local had = get_many(K.shares, fields)
    local least = tonumber(had[1] or 0)
    for i, one in ipairs(ring) do
        one.field, one.had = fields[i + 1], max(tonumber(had[i + 1] or 0), least)
    end
    table.sort(ring, function(a, b)
        if a.had ~= b.had then return a.had < b.had end
        if a.jobs ~= b.jobs then return a.jobs < b.jobs end
        return a.tenant < b.tenant
    end)
end

local function claim_shares(c, rank, ring, quota)
    ring_sort(rank, ring)
    local level, least, fields, count = nil, math.huge, {}, c.count
    for _, one in ipairs(ring) do
        local before = one.had
        level = level or before + QUANTUM
        for _, line in ipairs(one) do
            local n, work = claim_line(c, line, quota, level - one.had)
            quota, one.had = quota - n, one.had + work
        end
        if c.count == count then level = nil end -- nothing of it fits: who is next?
        if one.had > before then
            fields[#fields + 1], fields[#fields + 2] = one.field, whole(one.had)
        end
        for _, line in ipairs(one) do
            if c.lines[line] > 0 then least = min(least, one.had) end
        end
    end
    if least < math.huge then fields[#fields + 1], fields[#fields + 2] = rank, whole(least) end
    call_many('HSET', K.shares, fields)
    State.set('shared', now)
end

-- Gives of one priority.
claim_rank = function(c, class, priority, quota)
    local ring, of = {}, {}
    for _, si in ipairs(places_of(class, priority)) do
        for _, tenant in ipairs(c.waits[si] or {}) do
            local line = si .. ' ' .. tenant
            local one = of[tenant]
            if not one then
                one = {tenant = tenant, jobs = 0}
                of[tenant], ring[#ring + 1] = one, one
            end
            one[#one + 1], one.jobs = line, one.jobs + c.lines[line]
        end
    end
    if #ring > 1 then return claim_shares(c, class .. '-' .. priority, ring, quota) end
    for _, line in ipairs(ring[1] or {}) do
        quota = quota - claim_line(c, line, quota, c.shared and QUANTUM or math.huge)
    end
end

end

-- For what a worker demands, see Idle.demand; at most `share` entries.
local function claim_new(demand, share)
    return {most = demand.most, room = demand.bytes, share = share, count = 0, entries = 0, frames = 0, full = false,
            us = {demand.quick, demand.brief, demand.long}, names = {nil},
            reply = {Record.events.clock(), '', nil, nil}}
end

-- Whether any jobs wait that a worker of that class may have.
local function has_waiting(class) return S.waits1 + (class == 1 and S.waits2 or S.waits3) > 0 end

-- Gives a worker of that class what it may have. `turn` drives ageing. `fresh`: nil, or what was submitted and is
-- in no list yet: {name, meta, frame, like, jobs, given = true once a worker has it}, and `si` that of all, if one
-- is. The worker is idle then, so none of what waits is for it.
local function claim_take(c, class, turn, fresh, si)
    if fresh then
        c.fresh = fresh
        if si then
            if SI.class[si] == 1 or SI.class[si] == class + 1 then claim_fresh(c, si, c.most) end
            return
        end
        for p = 1, 3 do
            for _, si in ipairs(places_of(class, p)) do claim_fresh(c, si, c.most) end
        end
        return
    end
    expire_due()
    c.waits, c.lines = {}, waiting()
    for line, jobs in pairs(c.lines) do
        local si = sub(line, 1, 1)
        local tenants = c.waits[si] or {}
        if jobs > 0 then c.waits[si], tenants[#tenants + 1] = tenants, sub(line, 3) end
    end
    c.shared = now - S.shared < SHARED_US
    c.mean = max(1, S.bytes / max(1, S.jobs))
    -- Ageing: of each eight turns one gives normal, and one low, the first half.
    local aged = turn % 8 == 3 and 2 or turn % 8 == 7 and 3 or nil
    if aged then claim_rank(c, class, aged, floor((c.most + 1) / 2)) end
    for p = 1, 3 do
        if c.count < c.most and not c.full then claim_rank(c, class, p, c.most) end
    end
end

-- Notes that the worker has these now, from the turn that `label` names, "THREAD SEQ"; `fields`:
-- what else is to be written there.
local function claim_note(worker, names, label, fields)
    local n = #fields
    for i = 1, #names do fields[n + 2 * i - 1], fields[n + 2 * i] = names[i], label end
    call_many('HSET', K.claims_of .. worker, fields)
end

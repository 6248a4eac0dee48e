-- Lists of jobs, a page at a time. Read next: workers.lua.
--
-- A page is read in steps, each of which looks at a few names: those of running jobs, or some of
-- {q}:pending, or of one bucket of records, as HSCAN gives them. A step's jobs are in order, newest
-- first; the cursor says which step, and which of its jobs was the last one looked at.

local ROWS = 400      -- jobs looked at for one page, whether they are listed or not
local BYTES = 1048576 -- the same, of their records
local PENDING_STEP, RECORDS_STEP = 64, 16

-- What jobs of a step are sorted by: "US" in 16 digits, and the id. `made`: the former.
local function record_made(record, at, id)
    local _, _, behind = record_head(record, at)
    local us = behind and #record >= behind + 7 and struct.unpack('<i8', record, behind) or
               tonumber(match(record, '^T1\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n(%d+)\n', at)) or
               tonumber(sub(id, 2, 9), 16) * 1000000
    return format('%016.0f', us)
end

local function record_state(record, at)
    return record_head(record, at) or match(record, '^T1\n(%a+)\n', at)
end

local function record_op(record, at)
    local _, op = record_head(record, at)
    return op or match(record, '^T1\n[^\n]*\n[^\n]*\n([^\n]*)\n', at)
end

-- Looks at one job; `made` as above, `record(state wanted)` gives its record, or nil where it is of
-- another state.
local function page_look(p, made, id, record)
    if p.last ~= '' and made .. id >= p.last then return true end
    if p.count >= p.limit or p.looked >= ROWS or p.bytes > BYTES then return false end
    p.looked, p.at = p.looked + 1, made .. id
    local us = tonumber(made)
    local text = us >= p.since and us < p.before and record()
    if text then
        p.count, p.bytes = p.count + 1, p.bytes + #text
        p.reply[p.count + 1] = text
    end
    return true
end

-- Goes through the rows of a step, {made, name, ...}, newest first, and calls each(row, id, from, to)
-- for every job until that is false. Returns whether it came to the end. What stands for a packet is
-- looked into only if some of its jobs are to be listed yet.
local function page_step(p, rows, pieces_of, each)
    table.sort(rows, function(a, b) return a[1] .. a[2] > b[1] .. b[2] end)
    for _, row in ipairs(rows) do
        local name = row[2]
        if not is_packet(name) then
            if not each(row, name) then return false end
        elseif p.last == '' or row[1] .. name <= sub(p.last, 1, 16 + PACKET) then
            local jobs, pieces = {}, pieces_of(row)
            each_piece(pieces, function(id, from, to) jobs[#jobs + 1] = {id, from, to} end)
            table.sort(jobs, function(a, b) return a[1] > b[1] end)
            for _, job in ipairs(jobs) do
                if not each(row, unpack(job)) then return false end
            end
        end
    end
    return true
end

-- Names of pending jobs, and their stubs.
local function step_pending(p, names, stubs)
    local rows = {}
    for i, stub in ipairs(stubs) do
        local job = parse(stub)
        rows[i] = {format('%016.0f', tonumber(job.us)), names[i], job}
    end
    local function pieces_of(row) return call('HGET', K.frames, row[2]) or '' end
    return page_step(p, rows, pieces_of, function(row, id)
        local job = row[3]
        return page_look(p, row[1], id, function()
            if p.op ~= '' and job.op ~= p.op then return nil end
            if p.which ~= 'any' and (p.finder(id) and 'running' or 'queued') ~= p.which then return nil end
            return terse(id, job, nil, nil, p.finder)
        end)
    end)
end

local function step_records(p, found)
    local rows = {}
    for i = 1, #found, 2 do
        local name, pieces = found[i], found[i + 1]
        p.bytes = p.bytes + #pieces / 8 -- to read them costs less than to send them
        rows[#rows + 1] = {record_made(pieces, PIECE_HEAD + 1, name), name, pieces}
    end
    local function pieces_of(row) return row[3] end
    return page_step(p, rows, pieces_of, function(row, id, from, to)
        local pieces = row[3]
        from, to = from or PIECE_HEAD + 1, to or #pieces
        return page_look(p, row[1], id, function()
            local state = record_state(pieces, from)
            if p.which ~= 'any' and state and state ~= p.which then return nil end
            if p.op ~= '' and record_op(pieces, from) ~= p.op then return nil end
            return sub(pieces, from, to)
        end)
    end)
end

-- Running jobs, of all workers.
local function list_running(p)
    local names = {}
    for _, worker in ipairs(call('HKEYS', K.workers)) do
        local _, begun = holdings(worker)
        for name in pairs(begun) do names[#names + 1] = name end
    end
    return step_pending(p, resolve(names))
end

-- The bucket that comes after this one, where the newest is the first; nil behind the last.
local function bucket_after(p, bucket)
    local second = '+inf'
    if bucket then
        local kind, b = match(bucket, '^(%a):(%d+)$')
        second = (tonumber(b) + 1) * WIDTH[kind]
    end
    local near = call('ZRANGE', K.seconds, second, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 3,
                      'WITHSCORES')
    for i = 1, #near, 2 do
        local one, score = near[i], tonumber(near[i + 1])
        -- a body may take its time to come: its job is made some time after its id
        if (score + 600) * 1000000 < p.since then return nil end
        if not bucket or score < second or one < bucket then return one end
    end
    return nil
end

-- The steps from where the cursor says; returns where the next page goes on, '' at the end.
local function list_steps(p, phase, bucket, scan)
    local function here() return concat({phase, (gsub(bucket or '', ':', '')), scan, p.at}, '-') end
    while true do
        local whole_step
        if phase == 'r' then
            whole_step = list_running(p)
        else
            local key = phase == 'p' and K.pending or K.rec_of .. bucket
            local r = call('HSCAN', key, scan, 'COUNT', phase == 'p' and PENDING_STEP or RECORDS_STEP)
            if phase == 'e' then
                whole_step = step_records(p, r[2])
            else
                local names, stubs = {}, {}
                for i = 1, #r[2], 2 do names[#names + 1], stubs[#stubs + 1] = r[2][i], r[2][i + 1] end
                whole_step = step_pending(p, names, stubs)
            end
            if whole_step then scan = r[1] end
        end
        if not whole_step then return here() end
        p.last, p.at, p.looked = '', '', p.looked + 4 -- a step costs, too, if it finds nothing
        if phase == 'r' then return '' end
        if scan == '0' then
            if phase == 'p' and p.which ~= 'any' then return '' end
            if phase == 'p' then
                phase, bucket = 'e', nil
            end
            bucket = bucket_after(p, bucket)
            if not bucket then return '' end
        end
        if p.count >= p.limit or p.looked >= ROWS or p.bytes > BYTES then return here() end
    end
end

local function list(keys, args)
    start(keys, args)
    local p = {which = args[2], op = args[3], since = tonumber(args[4]), before = tonumber(args[5]),
               limit = min(tonumber(args[6]), 100), last = '', at = '', looked = 0, count = 0,
               bytes = 0, reply = {''}, finder = running_finder(100)}
    local phase = p.which == 'running' and 'r' or (p.which == 'any' or p.which == 'queued') and 'p' or 'e'
    local bucket, scan = nil, '0'
    if args[7] ~= '' then
        local kind, b
        phase, kind, b, scan, p.last = match(args[7], '^([rpe])%-([sa]?)(%d*)%-(%d+)%-(%w*)$')
        if not phase or #scan > 20 or #b > 10 or (phase == 'e') ~= (kind ~= '' and b ~= '') then
            return 400
        end
        bucket, p.at = phase == 'e' and kind .. ':' .. b or nil, p.last
    elseif phase == 'e' then
        bucket = bucket_after(p, nil)
        if not bucket then return p.reply end
    end
    p.reply[1] = list_steps(p, phase, bucket, scan)
    return p.reply
end

-- Lists of jobs, a page at a time. Read next: workers.lua.
--
-- A page is read in steps, each of which looks at a few names: those of running jobs, or some of
-- {q}:pending, or of one bucket of records, as HSCAN gives them. A step's jobs are in order, newest
-- first; the cursor says which step, and which of its jobs was the last one looked at.

local ROWS = 200      -- jobs looked at for one page, whether they are listed or not
local BYTES = 1048576 -- the same, of their records
local STEP = {p = 64, a = 16, s = 2} -- names of one step: pending, records, those of whole packets

-- When a job was made, in us, as its record says that begins at `at` of the text.
local function record_made(text, at, id)
    local _, _, behind = record_head(text, at)
    if behind and #text >= behind + 7 then return struct.unpack('<i8', text, behind) end
    return tonumber(match(text, '^T1\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n(%d+)\n', at)) or
           tonumber(sub(id, 2, 9), 16) * 1000000
end

-- Whether the record that begins at `at` is of the state and operation that are wanted.
local function record_wanted(p, text, at)
    if p.state then
        local state = byte(text, at + 12)
        if byte(text, at) == 84 then -- terse
            if sub(text, at, at + #p.terse - 1) ~= p.terse then return false end
        elseif RECORD_STATES[state] and state ~= p.state then
            return false
        end
    end
    if p.op == '' then return true end
    local _, op = record_head(text, at)
    return p.op == (op or match(text, '^T1\n[^\n]*\n[^\n]*\n([^\n]*)\n', at))
end

-- A row is {key, name, ...}, the key made of when the job was made and its name, so that rows can be
-- put in order; nil where it was made at another time than is wanted.
local function row_key(p, us, name)
    if us < p.since or us >= p.before then return nil end
    return format('%016.0f', us) .. name
end

-- However much it was, a page gets one job or step further.
local function page_full(p)
    return p.count >= p.limit or p.moved and (p.looked >= ROWS or p.bytes > BYTES)
end

-- Goes through the rows of a step, newest first, from behind the last one that was looked at, until
-- the page is full; `record(row)` gives what is listed of a job, `jobs(row)` the rows of a packet,
-- which is looked into only if some are to be listed yet. Returns whether it came to the end.
local function newest_first(a, b) return a[1] > b[1] end
local function page_rows(p, rows, record, jobs)
    table.sort(rows, newest_first)
    for _, row in ipairs(rows) do
        local key = row[1]
        if not is_packet(row[2]) then
            if p.last == '' or key < p.last then
                if page_full(p) then return false end
                p.looked, p.at, p.moved = p.looked + 1, key, true
                local text = record(row)
                p.count, p.bytes = p.count + 1, p.bytes + #text
                p.reply[p.count + 1] = text
            end
        elseif p.last == '' or key <= sub(p.last, 1, #key) then
            if not page_rows(p, jobs(row), record) then return false end
        end
    end
    return true
end

local function step_pending(p, names, stubs)
    local rows = {}
    for i, stub in ipairs(stubs) do
        local job = parse(stub)
        local key = (p.op == '' or job.op == p.op) and row_key(p, tonumber(job.us), names[i])
        if key then rows[#rows + 1] = {key, names[i], job} end
    end
    p.looked = p.looked + (#stubs - #rows) / 4
    local function record(row) return terse(row[2], row[3], nil, nil, p.finder) end
    local function jobs(row)
        local made, all = sub(row[1], 1, 16), {}
        for i, id in ipairs(packet_ids(row[2])) do all[i] = {made .. id, id, row[3]} end
        return all
    end
    return page_rows(p, rows, record, jobs)
end

local function step_records(p, found)
    local rows = {}
    for i = 1, #found, 2 do
        local name, pieces = found[i], found[i + 1]
        local at, key = PIECE_HEAD + 1, nil
        p.bytes = p.bytes + #pieces / 8 -- to read them costs less than to send them
        if is_packet(name) then -- its jobs were made at one time, so to say
            key = format('%016.0f', record_made(pieces, at, name)) .. name
        elseif record_wanted(p, pieces, at) then
            key = row_key(p, record_made(pieces, at, name), name)
        end
        if key then rows[#rows + 1] = {key, name, pieces, at, #pieces} end
    end
    p.looked = p.looked + (#found / 2 - #rows) / 2 -- these were dealt with in little time
    local function record(row) return sub(row[3], row[4], row[5]) end
    local function jobs(row)
        local made, pieces, all, at = sub(row[1], 1, 16), row[3], {}, 1
        while at + PIECE_HEAD - 1 <= #pieces do
            local from = at + PIECE_HEAD
            local to = from - 1 + struct.unpack('<I4', pieces, at)
            if record_wanted(p, pieces, from) then
                local id = sub(pieces, at + 4, at + PIECE_HEAD - 1)
                if not p.timed or row_key(p, record_made(pieces, from, id), id) then
                    all[#all + 1] = {made .. id, id, pieces, from, to}
                end
            end
            p.looked = p.looked + 0.25
            at = to + 1
        end
        return all
    end
    return page_rows(p, rows, record, jobs)
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
            local r = call('HSCAN', key, scan, 'COUNT', STEP[phase == 'p' and 'p' or sub(bucket, 1, 1)])
            if phase == 'e' then
                whole_step = step_records(p, r[2])
            else
                local names, stubs = {}, {}
                for i = 1, #r[2], 2 do
                    local name = r[2][i]
                    if p.which == 'any' or not p.finder(name) then
                        names[#names + 1], stubs[#stubs + 1] = name, r[2][i + 1]
                    end
                end
                whole_step = step_pending(p, names, stubs)
            end
            if whole_step then scan = r[1] end
        end
        if not whole_step then return here() end
        p.last, p.at, p.looked, p.moved = '', '', p.looked + 1, true -- a step costs, too, if it finds nothing
        if phase == 'r' then return '' end
        if scan == '0' then
            if phase == 'p' and p.which ~= 'any' then return '' end
            if phase == 'p' then
                phase, bucket = 'e', nil
            end
            bucket = bucket_after(p, bucket)
            if not bucket then return '' end
        end
        if page_full(p) then return here() end
    end
end

local WANTED = {succeeded = 2, failed = 3, cancelled = 4, expired = 5}
local function list(keys, args)
    start(keys, args)
    local p = {which = args[2], op = args[3], since = tonumber(args[4]), before = tonumber(args[5]),
               limit = min(tonumber(args[6]), 100), last = '', at = '', looked = 0, count = 0,
               bytes = 0, reply = {''}, state = WANTED[args[2]], terse = 'T1\n' .. args[2] .. '\n', finder = running_finder(100)}
    p.timed = p.since > 0 or p.before < 9e15
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

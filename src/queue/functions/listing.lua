-- Lists of jobs, a page at a time. Read next: turn.lua.
--
-- First what is pending: a page is read in steps, each of which looks at a few names of the tenant's: those of
-- running jobs, or some of what is pending, as SSCAN and HSCAN give them. A step's jobs are in order, newest
-- first. Where the page is full in the midst of one, the cursor names the last job listed, and the next page
-- passes over it and those before it. That misses none only if the step cannot have got jobs meanwhile that
-- belonged to others: so steps are cut that are of a whole hash, or, as hashes grow, of one slot. Jobs of a batch
-- entry that is opened meanwhile may come to slots that are behind: so what is pending is followed by the jobs of
-- those opened since the list began, which the cursor says until then, in us.
--
-- Then records, by when they ended, the last first, no two of which have ended at one time.
--
-- The cursor is "PHASE-AT-SCAN-LAST": PHASE r running, p pending, o opened, e ended, or P, O: the step is of one
-- slot. AT: when the list began; of e, when that ended of which the job LAST, or else all, is on the page before.

local list
do

local ROWS = 108      -- jobs looked at for one page, whether they are listed or not
local BYTES = 1048576 -- the same, of their records
local STEP = 32       -- names of one step of what is pending
local LAST = 9e15     -- us: later than anything ends
local ENDED = 8       -- records, or those of a batch entry, that are read at a time

-- Whether labels have the one that is wanted: p.label is it between commas, or ",NAME=".
local function label_wanted(p, labels) return find(',' .. labels .. ',', p.label, 1, true) end

-- Whether the record that begins at `at` is of the state and operation that are wanted.
local function record_wanted(p, text, at)
    if p.state and (Record.state(text, at) or p.which) ~= p.which then return false end
    return (p.op == '' or p.op == Record.op(text, at)) and
           (p.label == '' or label_wanted(p, Record.labels(text, at)))
end

-- A row is {key, name, ...}, the key made of when the job was made and its name, so that rows can be
-- put in order; nil where it was made at another time than is wanted.
local function row_key(p, us, name)
    if us < p.since or us >= p.before then return nil end
    return format('%016.0f', us) .. name
end

-- Goes through the rows of a step, newest first, from behind the last one that was looked at, until
-- the page is full; `record(row)` gives what is listed of a job, `jobs(row)` the rows of a batch entry,
-- which is looked into only if some are to be listed yet. Returns whether it came to the end.
local function newest_first(a, b) return a[1] > b[1] end
local function page_rows(p, rows, record, jobs)
    table.sort(rows, newest_first)
    for _, row in ipairs(rows) do
        local key = row[1]
        if not is_batch_entry(row[2]) then
            if p.last == '' or key < p.last then
                if p.count >= p.limit then return false end
                local text = record(row)
                p.at, p.looked, p.count, p.bytes = key, p.looked + 1, p.count + 1, p.bytes + #text
                p.reply[p.count + 1] = text
            end
        elseif p.last == '' or key <= sub(p.last, 1, #key) then
            if not page_rows(p, jobs(row), record) then return false end
        end
    end
    return true
end

local function step_pending(p, names, metas)
    local rows = {}
    for i, meta in ipairs(metas) do
        local job = parse(meta)
        local key = job.tenant == p.tenant and (p.op == '' or job.op == p.op) and
                    (p.label == '' or label_wanted(p, job.labels)) and
                    row_key(p, tonumber(job.us), names[i])
        if key then rows[#rows + 1] = {key, names[i], job} end
    end
    p.looked = p.looked + (#metas - #rows) * 0.4
    local function record(row) return summary(row[2], row[3], nil, nil, p.finder) end
    local function jobs(row)
        local made, all = sub(row[1], 1, 16), {}
        for i, id in ipairs(batch_entry_ids(row[2])) do all[i] = {made .. id, id, row[3]} end
        return all
    end
    return page_rows(p, rows, record, jobs)
end

-- What has ended before that time, or, `with`, then or before: {when, name} each, the last first.
local function ended_before(p, at, with)
    local found = {}
    for _, kind in ipairs({'s', 'a'}) do
        local all = call('ZRANGE', K.index_of .. kind .. ':' .. p.tenant, (with and '' or '(') .. whole(at), '-inf',
                         'BYSCORE', 'REV', 'LIMIT', 0, ENDED, 'WITHSCORES')
        for i = 1, #all, 2 do found[#found + 1] = {tonumber(all[i + 1]), all[i]} end
    end
    table.sort(found, newest_first)
    return found
end

-- The rows of the records that are wanted of one value: {id, from, to}, newest first.
local function rows_of(p, frames)
    local rows = {}
    each_record_frame(frames, function(id, from, to)
        p.looked = p.looked + 0.25
        if record_wanted(p, frames, from) and row_key(p, Record.made(frames, from, id), id) then
            rows[#rows + 1] = {id, from, to}
        end
    end)
    table.sort(rows, newest_first)
    return rows
end

-- Lists what has ended; returns where the next page goes on, '' at the end.
local function list_ended(p, at)
    local function here() return concat({'e', whole(at), '0', p.last}, '-') end
    while true do
        if p.count >= p.limit or p.looked >= ROWS or p.bytes > BYTES then return here() end
        local found, keys = ended_before(p, at, p.last ~= ''), {}
        if #found == 0 then return '' end
        for i = 1, min(#found, ENDED) do keys[i] = K.record_of .. found[i][2] end
        for i, text in ipairs(call('MGET', unpack(keys))) do
            local head = Kept.read(text, p.tenant)
            if p.last == '' or found[i][1] ~= at then at, p.last = found[i][1], '' end
            if at < p.since then return '' end -- it was made before that
            for _, row in ipairs(head and rows_of(p, head.frames) or {}) do
                if p.last == '' or row[1] < p.last then
                    if p.count >= p.limit then return here() end
                    p.count, p.last = p.count + 1, row[1]
                    p.reply[p.count + 1] = sub(head.frames, row[2], row[3])
                    p.bytes = p.bytes + row[3] - row[2]
                end
            end
            p.last = ''
            p.looked, p.bytes = p.looked + 0.75, p.bytes + #(text or '') / 8 -- to read costs less than to send
            if p.count >= p.limit or p.looked >= ROWS or p.bytes > BYTES then return here() end
        end
    end
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

local function step_of(p, phase, found)
    local names, metas = {}, {}
    local function add(name, meta)
        if meta and (p.which == 'any' or
                     not p.finder(name)) then
            names[#names + 1], metas[#metas + 1] = name, meta
        end
    end
    if phase == 'p' and p.tenant == NOBODY then
        for i = 1, #found, 2 do add(found[i], found[i + 1]) end
    else
        for i, meta in ipairs(get_many(K.pending, found)) do add(found[i], meta) end
    end
    return step_pending(p, names, metas)
end

-- The jobs of those batch entries that were opened since the list began.
local function opened_since(p, opened)
    local all = {}
    for i = 2, #opened, 2 do
        local us = tonumber(match(opened[i], '^%d+ ') or 0) -- 0: an earlier revision did it
        if us >= p.began then
            for id in gmatch(opened[i], '%a%x+') do all[#all + 1] = id end
        end
    end
    return all
end

-- Makes a step; returns where the scan of that hash goes on, nil where the page was full before the
-- step was at its end.
local function scan_step(p, phase, key, most, scan)
    local command, each, wanted = 'HSCAN', 1, '*'
    if phase == 'p' and p.tenant == NOBODY then
        each, wanted, most = 2, '[sa]*', 2 * most -- metas, not the frames that lie beside them
    elseif phase == 'p' then
        command = 'SSCAN'
    end
    local function found(count)
        local r = call(command, key, scan, 'COUNT', count, 'MATCH', wanted)
        if phase == 'o' then r[2] = opened_since(p, r[2]) end
        return r
    end
    local r = found(p.slots and 1 or most)
    if not p.slots and (scan ~= '0' or r[1] ~= '0') then
        local jobs = 0
        for i = 1, #r[2], each do jobs = jobs + (is_batch_entry(r[2][i]) and 100 or 1) end
        if jobs > p.limit - p.count then -- it may have to be cut
            p.slots = true
            r = found(1)
        end
    end
    return step_of(p, phase, r[2]) and r[1] or nil
end

-- The steps from where the cursor says; returns where the next page goes on, '' at the end.
local function list_steps(p, phase, scan)
    local function here(slots)
        return concat({slots and phase:upper() or phase, phase ~= 'r' and whole(p.began) or '', scan, p.at}, '-')
    end
    if phase == 'r' then return list_running(p) and '' or here() end
    while true do
        local key = phase == 'o' and K.opened or p.tenant == NOBODY and K.pending or K.names_of .. p.tenant
        local before = p.looked
        local on = scan_step(p, phase, key, STEP, scan)
        if not on then return here(p.slots) end
        -- a step costs where it finds none, too; where it finds some, what it found does
        scan, p.last, p.at, p.looked = on, '', '', max(p.looked, before + 1)
        if scan == '0' then
            if phase == 'p' and call('EXISTS', K.opened) == 1 then
                phase, p.slots = 'o', false
            else
                return p.which == 'any' and list_ended(p, LAST) or ''
            end
        end
        if p.count >= p.limit or p.looked >= ROWS or p.bytes > BYTES then return here() end
    end
end

list = function(keys, args)
    start(keys, args)
    local p = {tenant = args[2], which = args[3], op = args[4], since = tonumber(args[5]),
               before = tonumber(args[6]), limit = min(tonumber(args[7]), 100), last = '', at = '',
               looked = 0, count = 0, bytes = 0, reply = {''}, finder = running_finder(100),
               slots = false, began = now, state = Record.ended(args[3])}
    local label = args[9] or ''
    p.label = label ~= '' and ',' .. label .. (find(label, '=', 1, true) and ',' or '=') or ''
    local phase, scan = p.state and 'e' or p.which == 'running' and 'r' or 'p', '0'
    if args[8] ~= '' then
        local at
        phase, at, scan, p.last = match(args[8], '^([rpoePO])%-(%d*)%-(%d+)%-(%w*)$')
        p.slots = phase == 'P' or phase == 'O'
        phase = phase and phase:lower()
        at = phase and (phase == 'r' and now or count_of(at))
        if not at or #scan > 20 then return 400 end
        p.began, p.at = at, p.last
    elseif phase == 'e' then
        p.began = LAST
    end
    p.reply[1] = phase == 'e' and list_ended(p, p.began) or phase ~= 'e' and list_steps(p, phase, scan) or ''
    return p.reply
end

end

-- Jobs that wait for others: what each wants of whom, and what becomes of it when that ends. Whoever
-- ends a job settles what waits for it in the same call, as many as AT_ONCE; the others are due, and
-- follow in the next calls. Read next: upgrade.lua.
do

local AT_ONCE = 1000

local released = {0, 0, 0} -- entries of each class that may run now, and whom nobody has been told of

-- The last word of a job that succeeded stays for those that refer to it, however long they wait,
-- and counts for as long.
local function make(id, record_frame, tenant)
    if call('HSETNX', K.made, id, record_frame) == 0 then return end
    local seg, bytes = Record.slice(record_frame, RECORD_FRAME_HEAD + 1)
    if seg and seg ~= '' then refer(seg, 1) end
    Tensor.leave(id, #record_frame + (bytes or 0), tenant, 'a')
end

-- Nobody refers to the blob any more.
function Wait.forget(blob)
    local id = match(blob, '^(%w+)%.out$')
    local record_frame = id and call('HGET', K.made, id)
    if not record_frame then return end
    call('HDEL', K.made, id)
    Tensor.let_go(id)
    local seg = Record.slice(record_frame, RECORD_FRAME_HEAD + 1)
    if seg and seg ~= '' then refer(seg, -1) end
end

-- What a submission's w= says, "JOB:FIELD[:BLOB],...": nil and the reply where one of them is not
-- there, or has ended without a result; else what is to be noted once the job is taken in.
-- `recorded(id, tenant)` finds records.
function Wait.find(text, tenant, recorded)
    local found, seen = {wants = {}, made = {}, holds = {}}, {}
    for id, field, blob in gmatch(text, '(%w+):([^:,]+):?([^,]*)') do
        local meta = metas_alone({id}, 1, tenant)[1]
        local record, record_frame
        if not meta then
            record, record_frame = recorded(id, tenant)
            if not record or blob ~= '' and not Tensor.there(blob, tenant) then return nil, 9 end
            if Record.state(record, 1) ~= 'succeeded' then return nil, 11 end
        end
        if not seen[id] then
            if meta then found.wants[#found.wants + 1] = id .. ' ' .. field end
            found.made[id], seen[id] = record_frame, true
        end
        found.holds[#found.holds + 1] = id .. '.out'
        if blob ~= '' then found.holds[#found.holds + 1] = blob end
    end
    return found
end

-- The tenant's job has been taken in, and holds what it refers to.
function Wait.begin(id, found, tenant)
    for from, record_frame in pairs(found.made) do make(from, record_frame, tenant) end
    if #found.wants == 0 then return end
    call('HSET', K.waits, id, concat(found.wants, ','))
    for _, one in ipairs(found.wants) do
        local from = sub(one, 1, ID)
        call('ZADD', K.wanted, 0, from .. ' ' .. id)
        -- room was made for it by ending jobs whose deadline had passed
        if call('HEXISTS', K.pending, from) == 0 then call('HSET', K.due, from, 'has expired') end
    end
end

-- What a worker is to know of those that the job refers to, behind its frame: RECORD_FRAMEs.
function Wait.made(name)
    local record_frames, seen = {}, {}
    for id in gmatch(call('HGET', K.holds, name) or '', '(%w+)%.out') do
        record_frames[#record_frames + 1] = not seen[id] and call('HGET', K.made, id) or nil
        seen[id] = true
    end
    return concat(record_frames)
end

-- The job waits for nobody any more; `text` is what it waited for.
local function leave(id, text)
    call('HDEL', K.waits, id)
    for from in gmatch(text, '(%w+) [^,]+') do call('ZREM', K.wanted, from .. ' ' .. id) end
end

-- These have ended, `record_frames[i]` being the last word on names[i], which was of tenants[i]: they wait no
-- more, and what waits for them is due.
function Wait.note(names, record_frames, tenants)
    if call('EXISTS', K.waits) == 0 then return end
    for i, text in ipairs(get_many(K.waits, names)) do
        if text then leave(names[i], text) end
    end
    local blobs = {}
    for i, name in ipairs(names) do blobs[i] = name .. '.out' end
    for i, count in ipairs(get_many(K.refs, blobs)) do
        if count then
            local why, at = '', RECORD_FRAME_HEAD + 1
            local state = Record.state(record_frames[i], at) or 'failed'
            if state == 'succeeded' then
                make(names[i], record_frames[i], tenants[i])
            elseif state == 'failed' then
                why = 'has failed (' .. Record.error(record_frames[i], at) .. ')'
            else
                why = state == 'cancelled' and 'was cancelled' or 'has expired'
            end
            call('HSET', K.due, names[i], why)
        end
    end
end

-- One of those that it waits for has succeeded: once all have, it takes its place in a line.
local function go_on(lines, id, from)
    local left = {}
    for one in gmatch(call('HGET', K.waits, id) or '', '[^,]+') do
        if sub(one, 1, ID) ~= from then left[#left + 1] = one end
    end
    if #left > 0 then
        call('HSET', K.waits, id, concat(left, ','))
        return
    end
    call('HDEL', K.waits, id)
    local head, flags, tail = match(call('HGET', K.pending, id) or '', '^(%w %d+ %d+ )([4-7])( .*)$')
    if not head then return end
    local meta = head .. whole(flags - 4) .. tail
    local job = parse(meta)
    call('HSET', K.pending, id, meta)
    lines[job.line] = lines[job.line] or {}
    table.insert(lines[job.line], id)
    released[SI.class[job.si]] = released[SI.class[job.si]] + 1
    Record.events.queued(id, meta)
end

-- It has not: those that wait for it end.
local function give_up(e, id, from, why, finder)
    local text, meta = call('HGET', K.waits, id) or '', call('HGET', K.pending, id)
    local field
    for one, its in gmatch(text, '(%w+) ([^,]+)') do field = one == from and its or field end
    leave(id, text)
    if not meta then return end
    completion_add_summary(e, id, parse(meta), 'failed', 'input_failed', finder,
                       {field = field or 'inputs', detail = 'the job ' .. from .. ' ' .. why})
end

-- Settles `room` waiting jobs of those that are due; the ends among them, and the room that is left.
local function settle(room)
    local e, lines, due, finder = completion_new(), {}, call('HGETALL', K.due), running_finder(1)
    e.settled = true
    for i = 1, #due, 2 do
        if room <= 0 then break end
        local from, why = due[i], due[i + 1]
        local pairs_of = call('ZRANGE', K.wanted, '[' .. from .. ' ', '(' .. from .. '!', 'BYLEX',
                              'LIMIT', 0, room)
        for _, one in ipairs(pairs_of) do
            local id = sub(one, ID + 2)
            if why == '' then go_on(lines, id, from) else give_up(e, id, from, why, finder) end
        end
        call_many('ZREM', K.wanted, pairs_of)
        if #pairs_of < room then call('HDEL', K.due, from) end
        room = room - max(#pairs_of, 1)
    end
    for line, names in pairs(lines) do
        call_many('RPUSH', line_key(line), names)
        tally(line, #names)
    end
    return e, room
end

-- Those that end so may be waited for themselves.
function Wait.settle()
    local room, e = AT_ONCE, nil
    while room > 0 and call('EXISTS', K.due) == 1 do
        e, room = settle(room)
        completion_commit(e)
    end
end

-- Gives idle workers what may run now.
function Wait.serve()
    if released[1] + released[2] + released[3] == 0 then return end
    local count = released
    released = {0, 0, 0}
    serve(count)
end

end

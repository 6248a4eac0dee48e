-- What libraries of earlier schemas left. In schema 1 a job lay in a stream, with its frame, and its
-- stub named the entry; in schema 2 nothing counted the jobs that wait, but for ghosts. Read next:
-- front_ends.lua.

local function upgrade_job(si, j, frame, held)
    local id, blob = match(j or '', '^(%S+) %d+ %d+ ([01])$')
    local stub = id and call('HGET', K.pending, id)
    local head, tail = match(stub or '', '^([1-9]) %d+%-%d+ (%d+ %d+ .*)$')
    if not head then return end -- it has ended
    local us, cost, rest = match(tail, '^(%d+) (%d+) (.*)$')
    call('HSET', K.pending, id, concat({head, us, cost, blob, rest}, ' '))
    call('HSET', K.frames, id, frame or '')
    if not find(held, id, 1, true) then call('RPUSH', K.wait[si], id) end
end

-- What a worker held is given back by its end, like any other job.
local function upgrade_streams()
    local held = {}
    for _, name in ipairs(call('HKEYS', K.workers)) do
        held[#held + 1] = call('GET', K.held_of .. name) or ''
    end
    held = concat(held, ' ')
    for si, list in pairs(K.wait) do
        local stream, from = (gsub(list, ':wait:(%a+:%a+)$', ':s:%1')), '-'
        while call('EXISTS', stream) == 1 do
            local entries = call('XRANGE', stream, from, '+', 'COUNT', 100)
            for _, e in ipairs(entries) do upgrade_job(si, e[2][2], e[2][4], held) end
            if #entries < 100 then call('DEL', stream) else from = '(' .. entries[100][1] end
        end
    end
    for _, class in ipairs(CLASSES) do call('DEL', (gsub(K.pending, 'pending$', 'redo:' .. class))) end
end

-- What had begun stood in a text of its own, before revision 4 of schema 3.
local function upgrade_begun()
    for _, name in ipairs(call('HKEYS', K.workers)) do
        local run = gsub(K.begun_of, 'begun:$', 'run:') .. name
        local text, epoch = call('GET', run), match(call('HGET', K.workers, name), '^%S+ (%S+)')
        if text and epoch then call('HSET', K.begun_of .. name, '0', epoch .. '\n' .. text) end
        call('DEL', run)
    end
end

-- Before schema 4 records were weighed together, and nothing said in which order they were made.
local function upgrade_records()
    if call('HDEL', K.recbytes, 'total') == 0 then return end
    local sums, bytes = {s = 0, a = 0}, call('HGETALL', K.recbytes)
    for i = 1, #bytes, 2 do
        local kind, b = match(bytes[i], '^([sa]):(%d+)$')
        if kind then
            sums[kind] = sums[kind] + tonumber(bytes[i + 1])
            call('ZADD', K.seconds, whole((tonumber(b) + 1) * WIDTH[kind]), bytes[i])
        end
    end
    call('HSET', K.recbytes, 's', whole(sums.s), 'a', whole(sums.a))
end

local function upgrade()
    upgrade_streams()
    upgrade_begun()
    upgrade_records()
    local bytes, ghosts = (gsub(K.count, 'count$', 'bytes')), (gsub(K.count, 'count$', 'ghosts'))
    if call('EXISTS', bytes) == 0 then return end
    for si in pairs(K.wait) do compact(si) end
    call('HSET', K.count, 'jobs', call('HLEN', K.pending), 'bytes', call('GET', bytes))
    call('DEL', bytes, ghosts)
end

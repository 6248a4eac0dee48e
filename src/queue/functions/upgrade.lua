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

local upgrade_forms
do

-- Before revision 5 there were two forms of records: lines of text, which were written here, and
-- frames in which what stands behind the operation had no place of its own.
local function record_of_lines(text)
    local v = {}
    for line in gmatch(text .. '\n', '([^\n]*)\n') do v[#v + 1] = line end
    local priority, class = {high = 0, normal = 1, low = 2}, {any = 0, cpu = 1, cuda = 2}
    return Record.pack({state = v[2], id = v[3], op = v[4], priority = priority[v[5]],
                        class = class[v[14] or 'any'], created = tonumber(v[6]),
                        started = tonumber(v[7]), finished = tonumber(v[8]),
                        progress = tonumber(v[9]), attempts = tonumber(v[10]), code = v[11],
                        device = v[12]})
end

local function record_of_frame(text)
    local at = 17
    local function take(n)
        at = at + n
        return sub(text, at - n, at - 1)
    end
    local function take_text() return take(byte(take(1))) end
    local bytes, state, priority = struct.unpack('<I4BB', text, 9)
    local id, op, times, texts = take_text(), take_text(), take(88), {}
    for i = 1, 3 do texts[i] = Record.text(take_text()) end
    local warnings = byte(take(1))
    for i = 4, 3 + warnings do texts[i] = Record.text(take_text()) end
    local counts, code = take(24), take_text()
    local field, detail = code ~= '' and take_text() or '', code ~= '' and take_text() or ''
    local payload, place, segment, generation, offset = take(8), byte(take(1)), '', Record.zeros(4), Record.zeros(8)
    if place == 2 then segment, generation, offset = take_text(), take(4), take(8) end
    local energy = take(1) == '\1' and take(8) or Record.zeros(8)
    local outputs = byte(take(1))
    local from = at
    for i = 1, outputs do
        take_text() -- name
        take_text() -- dtype
        take(8 * byte(take(1)) + 16)
    end
    local tail = concat({Record.text(code), Record.text(field), Record.text(detail), concat(texts),
                         sub(text, from, at - 1)})
    local fill = -(256 + #tail) % 64
    return concat({struct.pack('<c4I2I2I4BBBB', 'BLRF', 2, 0, 256 + #tail + fill,
                               state, priority, 0, place),
                   times, counts, energy, payload, offset, generation,
                   string.char(warnings, outputs, 0, 0), Record.padded(segment, 16), Record.padded(id, 48),
                   Record.padded(op, 32), tail, Record.zeros(fill), sub(text, bytes + 1)})
end

local function record_renew(text)
    local old = sub(text, 1, 3) == 'T1\n' and record_of_lines or
                sub(text, 1, 6) == 'BLRF\1\0' and record_of_frame
    local good, fresh = pcall(old or tostring, text)
    return good and fresh or text -- of what is damaged, the bytes as they were
end

upgrade_forms = function()
    if call('HSETNX', K.recbytes, 'schema', 2) == 0 then return end
    for _, bucket in ipairs(call('ZRANGE', K.recs, 0, -1)) do
        local key, grown = K.rec_of .. bucket, 0
        for _, name in ipairs(call('HKEYS', key)) do
            local pieces, all = call('HGET', key, name), {}
            each_piece(pieces, function(id, from, to)
                local record = record_renew(sub(pieces, from, to))
                all[#all + 1] = struct.pack('<I4', #record) .. id .. record
            end)
            local fresh = concat(all)
            grown = grown + #fresh - #pieces
            call('HSET', key, name, fresh)
        end
        weigh(bucket, grown)
    end
end

end

local function upgrade()
    upgrade_streams()
    upgrade_begun()
    upgrade_records()
    upgrade_forms()
    local bytes, ghosts = (gsub(K.count, 'count$', 'bytes')), (gsub(K.count, 'count$', 'ghosts'))
    if call('EXISTS', bytes) == 0 then return end
    for si in pairs(K.wait) do compact(si) end
    call('HSET', K.count, 'jobs', call('HLEN', K.pending), 'bytes', call('GET', bytes))
    call('DEL', bytes, ghosts)
end

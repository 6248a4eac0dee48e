-- What the library of schema 4 left: there a worker's claims were a text, and what had begun a hash of
-- its own. The rest is the same. Read next: front_ends.lua.

local upgrade_forms
do

-- Before revision 5 of that there were two forms of records: lines of text, which were written here, and
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

-- Jobs that such workers held go back, and what had begun has cost an attempt.
local function upgrade()
    for _, name in ipairs(call('HKEYS', K.workers)) do
        local held = gsub(K.claims_of, 'claims:$', 'held:') .. name
        local begun = gsub(K.claims_of, 'claims:$', 'begun:') .. name
        if call('EXISTS', held, begun) > 0 then
            local names, parts = {}, call('HGETALL', begun)
            for one in gmatch(call('GET', held) or '', '%S+') do names[#names + 1] = one end
            for i = 1, #parts, 2 do
                call('HSET', K.claims_of .. name, '@' .. parts[i], parts[i + 1])
            end
            claim_note(name, names, '0 0', {})
            call('DEL', held, begun)
            recover(name)
        end
    end
    upgrade_forms()
end

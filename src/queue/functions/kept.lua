-- Records of jobs that have ended, and how long they are kept. Read next: tensors.lua.
--
-- The records of what ended together, a job or a batch entry, are one string with an expiry, whose head begins with
-- the tenant. {q}:index:KIND:TENANT lists them by when they ended. Their bytes are counted by the second in which
-- they go, {q}:goes:SECOND, until a tick sees that second. From then on it is not found any more, even while Redis,
-- by its own clock, has it yet.

local Kept = {}
do

-- The kind of an id, or of a batch entry's name: s of a job that somebody waits for, a of others; nil of none.
function Kept.kind(name) return match(name, '^([sa])%x%x%x%x%x%x%x%x') end

-- What an Idempotency-Key takes: as a key with a value, and beside the record.
function Kept.key_bytes(key) return 320 + 2 * #key end

local second_now, its_second -- of the last call
local function second()
    if second_now ~= now then second_now, its_second = now, floor(now / 1000000) end
    return its_second
end
local SECONDS = 1000 -- that one tick goes through

-- Counts bytes of a tenant's records of that kind.
local function weigh(kind, tenant, by)
    if kind == 's' then
        local is = S.kept_s + by
        S.kept_s = is > 0 and is or 0
    else
        State.set('kept_a', max(S.kept_a + by, 0))
    end
    if tenant == NOBODY then return end
    local field = kind .. ' ' .. tenant
    if call('HINCRBY', K.kept, field, whole(by)) <= 0 then call('HDEL', K.kept, field) end
end

-- Counts bytes that go in that second. Most go in the same second as those before, of kind s and without a tenant:
-- these are summed up in the state, and written when that second changes, or a tick comes.
local function write_due()
    if S.due_bytes ~= 0 then call('HINCRBY', K.goes_of .. whole(S.due), 's ' .. NOBODY, whole(S.due_bytes)) end
    S.due_bytes = 0
end

local function count_until(kind, tenant, by, goes)
    if kind ~= 's' or tenant ~= NOBODY then
        call('HINCRBY', K.goes_of .. whole(goes), kind .. ' ' .. tenant, whole(by))
        return
    end
    if goes ~= S.due then
        write_due()
        S.due = goes
    end
    S.due_bytes = S.due_bytes + by
end

-- Counts bytes of a tenant's records that go in that second; of those that have gone already nothing is to be counted.
local function weigh_until(kind, tenant, by, goes)
    if goes <= S.swept then return end
    weigh(kind, tenant, by)
    count_until(kind, tenant, by, goes)
end

-- Bytes of the tenant's records, of both kinds.
function Kept.of(tenant)
    if tenant == NOBODY then return S.kept_s + S.kept_a end
    local s, a = unpack(call('HMGET', K.kept, 's ' .. tenant, 'a ' .. tenant))
    return tonumber(s or 0) + tonumber(a or 0)
end

-- How many seconds a record stays that comes now. Those of kind a stay for their time, for which room was
-- reserved. Of the others the room is limited: the less of it a tenant leaves free, the shorter its next ones stay;
-- an equal share is each one's own, whatever others have.
local LEAST_S = 2
local function life(kind, tenant, bytes)
    local ttl, limit = L.ttl[kind], min(L.record_sync_bytes, L.record_bytes)
    if kind == 'a' then return ttl end
    local own = tenant == NOBODY and 0 or tonumber(call('HGET', K.kept, 's ' .. tenant) or 0)
    local free = limit - S.kept_s - own - bytes
    if 2 * free >= limit then return ttl end
    if tenant ~= NOBODY then free = max(free, limit / max(call('HLEN', K.kept), 1) - own - bytes) end
    State.set('gone', second()) -- what was made until now may go earlier than its id says
    return max(min(LEAST_S, ttl), floor(2 * ttl * max(free, 0) / limit))
end

-- A value: "TENANT KIND GOES BYTES OUT KEYBYTES\n", the Idempotency-Key, and record frames. GOES: the second in which
-- it goes; BYTES that are counted for it; OUT of these in the blob ID.out.
local last_goes, last_bytes, last_text = nil, nil, nil
local function write(name, tenant, kind, goes, bytes, out, key, record_frames)
    if goes ~= last_goes or bytes ~= last_bytes then
        last_goes, last_bytes, last_text = goes, bytes, ' ' .. whole(goes) .. ' ' .. whole(bytes) .. ' '
    end
    call('SET', K.record_of .. name,
         tenant .. ' ' .. kind .. last_text .. whole(out) .. ' ' .. whole(#key) .. '\n' .. key .. record_frames,
         'EX', whole(max(goes - second(), 0) + 1))
end

local function read(text, tenant)
    local its, kind, goes, bytes, out, key, at = match(text or '', '^(%S+) (%a) (%d+) (%d+) (%d+) (%d+)\n()')
    if not its or its ~= tenant or tonumber(goes) <= second() then return nil end
    key = tonumber(key)
    return {tenant = its, kind = kind, goes = tonumber(goes), bytes = tonumber(bytes), out = tonumber(out),
            key = sub(text, at, at + key - 1), frames = sub(text, at + key)}
end
Kept.read = read

-- The final record of the tenant's job, or nil; then what was read, with `name`, and where its record frame is there.
function Kept.find(id, tenant)
    if not Kept.kind(id) then return nil end
    for _, name in ipairs({id, sub(id, 1, BATCH_ENTRY)}) do
        local head = read(call('GET', K.record_of .. name), tenant)
        local from, to = 1, head and #head.frames
        if name ~= id then from, to = find_record_frame(head and head.frames or '', id) end
        if head and from then
            head.name, head.from, head.to = name, from, to
            return sub(head.frames, from + RECORD_FRAME_HEAD, to), head
        end
    end
    return nil
end

-- What is said of a job that is not found: 404, or 410 where its record has expired.
function Kept.unknown(id)
    local kind, made = match(id, '^([sa])(%x%x%x%x%x%x%x%x)')
    if not kind then return 404 end
    made = tonumber(made, 16)
    return (kind == 's' and made <= S.gone or made + L.ttl[kind] < second()) and 410 or 404
end

-- References of records to segments: "COUNT GOES". The segment is free without any, or from that second on.
local function refer_until(seg, by, goes)
    local count, till = match(call('HGET', K.segments, seg) or '', '^(%d+) (%d+)$')
    count, till = tonumber(count or 0) + by, max(tonumber(till or 0), goes)
    if count <= 0 then
        call('HDEL', K.segments, seg)
    else
        call('HSET', K.segments, seg, whole(count) .. ' ' .. whole(till))
    end
end

function Kept.has_segment(seg)
    local till = match(call('HGET', K.segments, seg) or '', ' (%d+)$')
    return till ~= nil and tonumber(till) > second()
end

-- Adds the records of what has ended, of one tenant and kind, and of so many bytes: name, record frames, bytes, out,
-- key and segments, or false, of one behind those of the other. Their order in lists is that of the end, each at a
-- time of its own.
function Kept.add(all)
    local kind, tenant, sum, outs, index = all.kind, all.tenant, all.bytes, 0, {nil, nil}
    local this = second()
    local goes = this + life(kind, tenant, sum) + 1
    if S.swept == 0 then State.set('swept', this - 1) end
    -- the clock has jumped: in the seconds between goes nothing, so ticks need not look at each
    if S.gap == 0 and S.swept < S.goes and S.goes < this - SECONDS then
        State.set('gap', S.goes)
        State.set('resume', this - 1)
    end
    if goes > S.goes then State.set('goes', goes) end
    local ended, n = S.ended, 0
    for i = 1, #all, 6 do
        local name, out, segs = all[i], all[i + 3], all[i + 5]
        write(name, tenant, kind, goes, all[i + 2], out, all[i + 4], all[i + 1])
        if segs then for seg, jobs in pairs(segs) do refer_until(seg, jobs, goes) end end
        if out > 0 then outs = outs + 1 end
        ended = now > ended and now or ended + 1
        index[n + 1], index[n + 2], n = ended == now and now_text or whole(ended), name, n + 2
    end
    S.ended = ended
    weigh_until(kind, tenant, sum, goes)
    if outs > 0 then call('HINCRBY', K.goes_of .. whole(goes), 'out', whole(outs)) end
    call_many('ZADD', K.index_of .. kind .. ':' .. tenant, index)
end

-- Deletes the record of an ended job, which Kept.find has found.
function Kept.forget(id, head)
    local record_frame, alone = sub(head.frames, head.from, head.to), #head.frames == head.to - head.from + 1
    local seg, held = Record.slice(record_frame, RECORD_FRAME_HEAD + 1)
    local bytes = min(#record_frame + RECORD_OVERHEAD + (seg and seg ~= '' and held or 0), head.bytes)
    if seg and seg ~= '' then refer_until(seg, -1, 0) end
    if alone then
        bytes = head.bytes
        call('UNLINK', K.record_of .. head.name)
        call('ZREM', K.index_of .. head.kind .. ':' .. head.tenant, head.name)
        if head.key ~= '' then
            local key = K.idem_of .. head.tenant .. ':' .. head.key
            if sub(call('GET', key) or '', 1, ID) == id then call('UNLINK', key) end
        end
    else
        head.bytes = head.bytes - bytes
        write(head.name, head.tenant, head.kind, head.goes, head.bytes, head.out, head.key,
              sub(head.frames, 1, head.from - 1) .. sub(head.frames, head.to + 1))
    end
    if head.out > 0 and call('HEXISTS', K.left, id .. '.out') == 1 then -- a pending job refers to it
        call('HSET', K.left, id .. '.out', concat({whole(head.out), head.tenant, head.kind, '0'}, ' '))
        bytes = bytes - head.out
    end
    weigh_until(head.kind, head.tenant, -bytes, head.goes)
end

-- A pending job refers to the job's outputs: their bytes count as long as one does, too.
function Kept.hold_out(blob, tenant)
    local head = read(call('GET', K.record_of .. sub(blob, 1, ID)), tenant)
    if not head then return end
    call('HSET', K.left, blob, concat({whole(head.out), tenant, head.kind, whole(head.goes)}, ' '))
    count_until(head.kind, tenant, -head.out, head.goes)
end

function Kept.let_out_go(bytes, tenant, kind, goes)
    if goes > S.swept then
        count_until(kind, tenant, bytes, goes)
    else
        weigh(kind, tenant, -bytes)
    end
end

-- Whether there is a record of that id whose outputs are a blob, whoever's it is.
function Kept.is_out(id)
    local head = call('GETRANGE', K.record_of .. id, 0, 127)
    return tonumber(match(head, '^%S+ %a %d+ %d+ (%d+) ') or 0) > 0
end

-- Whether there is a record of the tenant's job whose outputs are a blob.
function Kept.has_out(id, tenant)
    local head = Kept.kind(id) and read(call('GET', K.record_of .. id), tenant)
    return head and head.out > 0
end

-- Stops counting what has gone, some seconds at a time; how many blobs may be free.
function Kept.tick()
    local this, free = second(), 0
    write_due()
    for goes = S.swept + 1, min(this, S.gap > 0 and S.gap or S.goes, S.swept + SECONDS) do
        local key = K.goes_of .. whole(goes)
        local all = call('HGETALL', key)
        for i = 1, #all, 2 do
            local kind, tenant = match(all[i], '^(%a) (.*)$')
            if kind then
                local before = whole(now - (L.ttl[kind] + 2) * 1000000)
                weigh(kind, tenant, -tonumber(all[i + 1]))
                call('ZREMRANGEBYSCORE', K.index_of .. kind .. ':' .. tenant, '-inf', before)
            else
                free = free + tonumber(all[i + 1])
            end
        end
        if #all > 0 then call('UNLINK', key) end
        State.set('swept', goes)
    end
    if S.gap > 0 and S.swept >= S.gap then
        State.set('swept', S.resume)
        State.set('gap', 0)
    end
    if S.swept >= S.goes then State.set('swept', max(S.swept, this)) end
    local r = call('HSCAN', K.segments, K.segments_cursor or '0', 'COUNT', 100)
    K.segments_cursor = r[1]
    for i = 1, #r[2], 2 do
        if not Kept.has_segment(r[2][i]) then free = free + call('HDEL', K.segments, r[2][i]) end
    end
    return free
end

end

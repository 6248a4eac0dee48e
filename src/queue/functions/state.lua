-- What every function works with: the names of keys, limits, the state, the clock, counts. Read next: metas.lua.

local CLASSES = {'any', 'cpu', 'cuda'}
local PRIORITIES = {'high', 'normal', 'low'}
-- Jobs are in lanes by the time that is predicted for them: quick ones, brief ones from BRIEF_US on, long
-- ones from LONG_US on. Both are powers of two, as predicted times are.
local LANES = {'', 'brief:', 'long:'}
local BRIEF_US, LONG_US = 8192, 1048576
-- Places in the queue, each a character: the nine of quick jobs by class and priority, those of brief ones and
-- those of long ones. Of each, its position in CLASSES, PRIORITIES and LANES; `quick`: the quick one of the
-- same class and priority. Filled in by the first call.
local SI = {class = {}, priority = {}, lane = {}, quick = {}}
local MANY = 2000            -- arguments of one command; Lua's stack holds some 8,000
local RECORD_OVERHEAD = 128  -- bytes that Redis itself spends on a record
local RECORD_FRAME_HEAD = 45 -- bytes of a record frame before its record
local NOBODY = 'anonymous'   -- the tenant where there are no keys: alone, so nothing is kept apart
local ID, BATCH_ENTRY = 41, 29    -- characters of an id, and those of it that name its batch entry

-- Filled in by the first call: while this file is loaded there are no globals but `redis`. To read a global costs three
-- times as much as to read one of these.
local function globals() return tonumber, ipairs, pairs, unpack end
local tonumber, ipairs, pairs, unpack
local call, format, find, match, gmatch, gsub, sub, byte, concat, floor, min, max

-- What the running call works with; set by start.
local K               -- names of the keys
local S = {}          -- the fields of {q}:state, see State
local L               -- limits
local now, now_text   -- microseconds on Redis' clock, as number and as text

-- The names of keys, made once for each queue. What is remembered like this from call to call is little: Lua's
-- collector goes over all of it again and again, the more often the more calls there are.
local key_tables, key_table_count = {}, 0
local function key_table(q)
    local k = key_tables[q]
    if k then return k end
    k = {wait = {}}
    for _, noun in ipairs({'state', 'pending', 'opened', 'lines', 'deadlines', 'kept', 'segments',
                           'workers', 'store', 'blobs', 'refs', 'unlogged', 'shares',
                           'used', 'events', 'ended',
                           'tensors', 'tensor_uses', 'tensor_ends', 'tensor_names',
                           'tensor_bytes', 'tensor_copies', 'hooks', 'hook_counts',
                           'left', 'sweeping', 'limits', 'schema'}) do
        k[noun] = q .. ':' .. noun
    end
    for _, noun in ipairs({'claims', 'wake', 'record', 'index', 'goes', 'idem',
                           'blob', 'hold', 'sent', 'names', 'figures'}) do
        k[noun .. '_of'] = q .. ':' .. noun .. ':'
    end
    for _, si in ipairs(SI) do
        k.wait[si] = q .. ':wait:' .. CLASSES[SI.class[si]] .. ':' .. PRIORITIES[SI.priority[si]] .. ':' ..
                     LANES[SI.lane[si]]
    end
    if key_table_count >= 64 then key_tables, key_table_count = {}, 0 end
    key_tables[q], key_table_count = k, key_table_count + 1
    return k
end

local function name_places()
    for i = 1, 27 do
        local si = sub('123456789abcdefghijklmnopqr', i, i)
        SI[i], SI.lane[si], SI.class[si] = si, floor((i - 1) / 9) + 1, floor((i - 1) % 9 / 3) + 1
        SI.priority[si], SI.quick[si] = (i - 1) % 3 + 1, SI[(i - 1) % 9 + 1]
    end
end

-- What is recorded of each queue, its limits, as the first call here has found it and each tick finds it
-- again; false where none are recorded yet.
local prepare, settle
do

local SCHEMA = '7' -- of all that is stored; a process of another one does not know these keys
local recorded, recorded_count = {}, 0

local given_text, given -- the limits of the last caller, read
local function read_limits(text)
    local words, n = {}, {}
    for word in gmatch(text or '', '%S+') do words[#words + 1] = word end
    for i, word in ipairs(words) do n[i] = tonumber(word) end
    if #n < 8 then error('LIMITS must be twelve numbers') end
    return {attempts = n[1], record_bytes = n[2], ttl = {s = n[3], a = n[4]}, queue_jobs = n[5],
            queue_bytes = n[6], lease_ms = n[7], record_sync_bytes = n[8],
            tensor_bytes = n[9] or math.huge, tensors = n[10] or math.huge,
            tensor_life_s = n[11] or 3600, ended_jobs = n[12] or 0, -- eight: a process of an earlier version
            text = concat(words, ' ', 1, min(#words, 12))}
end

-- Reads what is recorded, and returns the schema. What another one has written is not touched.
local function look_up_record(q)
    local text, schema = unpack(call('MGET', K.limits, K.schema))
    if schema and schema ~= SCHEMA then
        recorded[q] = nil
        error({err = 'SCHEMA ' .. sub(gsub(schema, '%c', ' '), 1, 40)})
    end
    if recorded_count >= 64 then recorded, recorded_count = {}, 0 end
    if recorded[q] == nil then recorded_count = recorded_count + 1 end
    if not text then
        recorded[q] = false
    elseif not recorded[q] or recorded[q].text ~= text then
        recorded[q] = read_limits(text)
    end
    return schema
end

prepare = function(keys, args)
    if not call then
        tonumber, ipairs, pairs, unpack = globals()
        call = redis.call
        format, find, match, gmatch = string.format, string.find, string.match, string.gmatch
        gsub, sub, byte, concat = string.gsub, string.sub, string.byte, table.concat
        floor, min, max = math.floor, math.min, math.max
        name_places()
    end
    local q = keys[1]
    K = key_table(q)
    if args[1] ~= given_text then given, given_text = read_limits(args[1]), args[1] end
    if recorded[q] == nil then look_up_record(q) end
    L = recorded[q] or given
end

-- Records the caller's limits, and the schema, where none are; `anew`: these limits in any case.
settle = function(q, anew)
    if not look_up_record(q) then
        if call('EXISTS', K.store) == 1 then error({err = 'SCHEMA 5'}) end -- it recorded no number
        call('SET', K.schema, SCHEMA)
    end
    if anew or not recorded[q] then
        call('SET', K.limits, given.text)
        recorded[q] = read_limits(given.text)
    end
    L = recorded[q]
end

end

-- A whole number from 0 to `most`, at the most what a double holds, or nil: arguments are texts, and 1e999 is
-- one.
local function count_of(text, most)
    local n = text and #text <= 16 and find(text, '^%d+$') and tonumber(text)
    return n and n <= (most or 9007199254740992) and n or nil
end

-- An integer as Redis takes it: -0 is none. To print one costs as much as a command does, so small ones are kept.
local SMALL = {}
local function whole(number)
    local text = SMALL[number]
    if text then return text end
    text = format('%d', number)
    if number >= 0 and number < 1024 then SMALL[number] = text end
    return text
end

-- {q}:state: a call reads it when it starts, works with S, and writes what has changed when it ends. The numbers that
-- most calls need are one field, for to read a field costs more than to unpack a number. S and the tables in here are
-- the same from call to call: what a call makes anew costs it twice, as Lua's collector then has to go over it.
local State = {}
do

local NUMBERS, NONE = '<dddddddddddddddddddddd', nil
local PARTS = '<dddc72dc48ddd' -- the same, where numbers that few calls change are packed already
local middle, later -- those numbers: waits1 to alone3, kept_a to gone; nil where State.set has changed one
local USUAL = {'numbers', 'idle'}
local names, had -- the fields of this call, and their values; those behind the usual ones as they are
local last       -- the numbers that S holds since the last call, if that has come to its end
local words, count = {}, 0 -- of the HSET that writes what has changed
local pack, unpacked

-- `fields`, where given, are the usual ones, and further ones that the call will look at, or change.
function State.read(fields)
    if not pack then
        pack, unpacked = struct.pack, struct.unpack
        NONE = string.rep('\0', 8 * (#NUMBERS - 1))
    end
    names, count = fields or USUAL, 0
    had = call('HMGET', K.state, unpack(names))
    had[1], had[2] = had[1] or NONE, had[2] or ''
    local s = S
    s.idle = had[2]
    if had[1] ~= last then -- else S has them
        s.jobs, s.bytes, s.results, s.waits1, s.waits2, s.waits3, s.clock, s.offset, s.shared, s.watched, s.alone2,
        s.alone3, s.kept_s, s.kept_a, s.swept, s.goes, s.gap, s.resume, s.gone, s.ended, s.due, s.due_bytes =
            unpacked(NUMBERS, had[1])
        middle, later = sub(had[1], 25, 96), sub(had[1], 105, 152)
    end
    last = nil
end

-- Changes a number that few calls change: one of waits1 to alone3, or kept_a to gone.
function State.set(name, value)
    if S[name] ~= value then S[name], middle = value, nil end
end

function State.write()
    if not had then return end
    local s, n = S, count
    if not middle then
        middle = pack('<ddddddddd', s.waits1, s.waits2, s.waits3, s.clock, s.offset, s.shared, s.watched, s.alone2, s.alone3)
        later = pack('<dddddd', s.kept_a, s.swept, s.goes, s.gap, s.resume, s.gone)
    end
    local is = pack(PARTS, s.jobs, s.bytes, s.results, middle, s.kept_s, later, s.ended, s.due, s.due_bytes)
    if is ~= had[1] then words[n + 1], words[n + 2], n = 'numbers', is, n + 2 end
    if s.idle ~= had[2] then words[n + 1], words[n + 2], n = 'idle', s.idle, n + 2 end
    had = nil
    if n > 0 then call('HSET', K.state, unpack(words, 1, n)) end
    last = is
end

-- The n-th of the fields: its value, or false; and a new one, as a text.
function State.field(n) return had[n] end
function State.change(n, value)
    if had[n] == value then return end
    had[n] = value
    words[count + 1], words[count + 2] = names[n], value
    count = count + 2
end

-- Counts in a field, which need not be one that this call has read.
function State.count(name, by)
    for i = 3, #names do
        if names[i] == name then return State.change(i, whole((had[i] or 0) + by)) end
    end
    call('HINCRBY', K.state, name, whole(by))
end

end

local devices -- of the workers, as this call has read them

-- Time does not go back with Redis' clock: it stands still until the next tick, and goes on from there. `fields`: which
-- fields of the state the call needs, as a function of its arguments.
local ZEROS = {'00000', '0000', '000', '00', '0', ''} -- before so many digits of microseconds
local function start(keys, args, fields)
    prepare(keys, args)
    devices = nil
    local t = call('TIME')
    State.read(fields and fields(args))
    now_text = t[1] .. ZEROS[#t[2]] .. t[2]
    now = tonumber(now_text)
    if S.offset ~= 0 or now < S.clock then
        now = max(now + S.offset, S.clock)
        now_text = whole(now)
    end
end

-- A function of the library: what it has changed of the state is written whatever becomes of it.
local function with_state(f)
    return function(keys, args)
        local ok, reply = pcall(f, keys, args)
        State.write()
        if ok then return reply end
        return redis.error_reply((string.find(reply, '^%u+ ') and '' or 'ERR ') .. reply) -- here an error is a text
    end
end

-- call(command, key, list...), in parts that Lua's stack can hold.
local function call_many(command, key, list)
    local n = #list
    if n == 0 then return end
    if n <= MANY then return call(command, key, unpack(list)) end
    for i = 1, n, MANY do call(command, key, unpack(list, i, min(i + MANY - 1, n))) end
end

-- HMGET of any number of fields.
local function get_many(key, fields, from)
    from = from or 1
    local n = #fields
    if n < from then return {} end
    if n - from < MANY then return call('HMGET', key, unpack(fields, from)) end
    local all = {}
    for i = from, n, MANY do
        for _, value in ipairs(call('HMGET', key, unpack(fields, i, min(i + MANY - 1, n)))) do
            all[#all + 1] = value
        end
    end
    return all
end

-- The frames of what is pending lie beside the metas: frame_field(NAME) is the field in which NAME's is.
local function frame_field(name) return '=' .. name end
local function frame_of(name) return call('HGET', K.pending, frame_field(name)) or '' end

local function frames_of(names)
    local fields = {}
    for i, name in ipairs(names) do fields[i] = frame_field(name) end
    return get_many(K.pending, fields)
end

-- The key of a line, "SI TENANT": of the list of what waits of one tenant in one place.
local function line_key(line) return K.wait[sub(line, 1, 1)] .. sub(line, 3) end

-- Changes how many jobs wait in a line, and in those of its class.
local WAITS = {'waits1', 'waits2', 'waits3'}
local function tally(line, by)
    if by == 0 then return end
    local field = WAITS[SI.class[sub(line, 1, 1)]]
    State.set(field, S[field] + by)
    call('HINCRBY', K.lines, line, whole(by))
end

-- How many jobs wait in each line.
local function waiting()
    local lines, all = {}, call('HGETALL', K.lines)
    for i = 1, #all, 2 do lines[all[i]] = max(tonumber(all[i + 1]), 0) end
    return lines
end

-- The demand of idle workers, lines "NAME THREAD SEQ CLASS MAX ROOM" in S.idle: who has been idle for longest comes first.
local Idle = {}

-- What "CLASS MAX ROOM" says, or nil; as a rule it is what the worker's last turn said. ROOM: bytes, and how many us
-- of each lane's jobs; as many as there are where it does not say.
local demands, demand_count = {}, 0
function Idle.demand(text)
    local demand = demands[text]
    if demand then return demand end
    local class, most, room = match(text, '^([0-2]) (%d+) (%d[%d ]*)$')
    if not class or class == '0' and most ~= '0' or not count_of(most) or #room > 80 then return nil end
    local bytes, quick, brief, long = match(room, '^(%d+) ?(%d*) ?(%d*) ?(%d*)')
    demand = {class = tonumber(class), most = tonumber(most), bytes = tonumber(bytes),
              quick = tonumber(quick) or math.huge, brief = tonumber(brief) or math.huge,
              long = tonumber(long) or math.huge}
    if demand_count >= 64 then demands, demand_count = {}, 0 end
    demands[text], demand_count = demand, demand_count + 1
    return demand
end

local last_line, last_worker, last_thread, last_seq, last_demand -- the line that was added, or read, last

-- What a line says: worker, thread, seq and demand, which is nil of what nothing here has written.
function Idle.read(line)
    if line ~= last_line then
        local demand
        last_line = line
        last_worker, last_thread, last_seq, demand = match(line, '^(%S+) (%d) (%d+) ([^\n]*)\n$')
        last_demand = demand and Idle.demand(demand)
    end
    return last_worker, last_thread, last_seq, last_demand
end

function Idle.drop(worker)
    if S.idle == '' then return end
    if S.idle == last_line and last_worker == worker then -- as a rule: it alone
        S.idle = ''
        return
    end
    local from = find('\n' .. S.idle, '\n' .. worker .. ' ', 1, true)
    if from then S.idle = sub(S.idle, 1, from - 1) .. sub(S.idle, find(S.idle, '\n', from, true) + 1) end
end

-- `wants`: "CLASS MAX ROOM", which says `demand`.
function Idle.add(worker, thread, seq, wants, demand)
    Idle.drop(worker)
    last_line = worker .. ' ' .. thread .. ' ' .. seq .. ' ' .. wants .. '\n'
    last_worker, last_thread, last_seq, last_demand = worker, thread, seq, demand
    S.idle = S.idle == '' and last_line or S.idle .. last_line
end

-- How much of a limit a tenant that is to have `more` lacks, where there are `all`, and `own` of them are its
-- own: it may have `most`, and no more than it leaves free. So however much one has, others find room; and one
-- that has none is let in where there is room in all. `most` 0: there are no others.
local function share_lacks(limit, all, own, more, most)
    local lacks = all + more - limit
    if most == 0 then return lacks end
    if own > 0 then lacks = max(lacks, (own + all + 2 * more - limit) / 2) end
    return max(lacks, own + more - most)
end

-- Changes what a tenant has pending; of one without limits of its own nobody asks. `results`: bytes that
-- its results will take.
local function meter(tenant, jobs, bytes, results)
    if call('HINCRBY', K.used, 'jobs ' .. tenant, whole(jobs)) <= 0 then
        call('HDEL', K.used, 'jobs ' .. tenant, 'bytes ' .. tenant, 'results ' .. tenant)
    else
        call('HINCRBY', K.used, 'bytes ' .. tenant, whole(bytes))
        if results ~= 0 then call('HINCRBY', K.used, 'results ' .. tenant, whole(results)) end
    end
end

-- Changes the number of references to a segment, or to a blob; how many there are, or false.
local function refer(seg, by)
    local count = call('HINCRBY', K.refs, seg, whole(by))
    if count > 0 then return count end
    call('HDEL', K.refs, seg)
    return false
end

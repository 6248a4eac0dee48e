-- What workers call.

local function info_ok(info)
    local ok, value = pcall(cjson.decode, info)
    return ok and type(value) == 'table'
end

local function register(keys, args)
    start(keys, args)
    local name, class, info, identity = args[2], args[3], args[4], args[5]
    if not info_ok(info) then return redis.error_reply('ERR register: INFO is no JSON object') end
    call('SETNX', K.store, identity)
    local store = call('GET', K.store)
    if store ~= identity then return redis.error_reply('STORE ' .. store) end
    recover(name)
    local epoch = call('INCR', K.epoch)
    call('SET', K.lease_of .. name, epoch, 'PX', L.lease_ms)
    call('HSET', K.workers, name, class .. ' ' .. epoch .. ' ' .. info)
    return {now, epoch}
end

local function renew(keys, args)
    start(keys, args)
    local name, epoch, info = args[2], args[3], args[4]
    local lost = lapsed(name, epoch)
    if lost then
        housekeeping()
        return lost
    end
    call('PEXPIRE', K.lease_of .. name, L.lease_ms)
    local was = call('HGET', K.workers, name) or '0'
    local is = sub(was, 1, 1) .. ' ' .. epoch .. ' ' .. info
    if is ~= was and info_ok(info) then call('HSET', K.workers, name, is) end
    return housekeeping()
end

local function release(keys, args)
    start(keys, args)
    local lost = lapsed(args[2], args[3])
    if lost then return lost end
    recover(args[2])
    return 0
end

local function bury(keys, args)
    start(keys, args)
    recover(args[2])
    return 0
end

-- What the worker does not know that it holds, because a reply to it was lost, goes back; packets
-- opened, for it may be one of damaged pieces that could not be read.
local function claim_check(name, held)
    local names, known = {}, {}
    for one in gmatch(held, '%S+') do known[one] = true end
    for one in gmatch(call('GET', K.held_of .. name) or '', '%S+') do
        if not known[one] then names[#names + 1] = one end
    end
    open_packets(names)
    give_back(names)
    call('SET', K.held_of .. name, held)
end

-- What was handed to a worker that had stopped waiting, as claim gives it; it is the worker's.
local function claim_handed(name)
    local handed, reply, at = call('LRANGE', K.wake_of .. name, 0, -1), {now}, 1
    local function calls(i) return handed[i] == '1' or handed[i] == '0' end
    while calls(at) do at = at + 1 end
    for i = at + 1, #handed - 1, 2 do
        if calls(i) then break end
        reply[#reply + 1], reply[#reply + 2] = handed[i], handed[i + 1]
    end
    call('DEL', K.wake_of .. name)
    return #reply > 1 and reply or nil
end

local function claim(keys, args)
    start(keys, args)
    local name, class, turn, held = args[2], tonumber(args[4]), tonumber(args[7]), args[10]
    local lost = lapsed(name, args[3])
    if lost then return lost end
    if args[8] == '1' then
        call('HDEL', K.idle, name)
        -- where a reply was missed they may have been in it: then the check below gives them back
        local reply = claim_handed(name)
        if reply and args[9] ~= '1' then return reply end
    end
    if args[9] == '1' then claim_check(name, held) end
    expire_due()
    local c = claim_take(name, class, tonumber(args[5]), tonumber(args[6]), turn, held,
                         math.huge)
    if c.count == 0 then
        call('HSET', K.idle, name, concat({args[4], args[5], args[6], args[7], held}, ' '))
        call('DEL', K.wake_of .. name)
    end
    return c.reply
end

-- What OUTPUTS say: bytes, and where they lie, as ending_add takes it.
local function outputs_of(outputs)
    if outputs == '0' then return 0, '' end
    local bytes, segs = match(outputs, '^(%d+) ?(.*)$')
    return tonumber(bytes), segs
end

-- Ends a job, or a packet, as its worker says; the digit for each of its jobs.
local function finish_one(e, name, stub, pieces, outputs, finder)
    local job = parse(stub)
    if job.deadline ~= 0 and job.deadline <= now then
        ending_add_terse(e, name, job, 'expired', 'deadline_exceeded', finder)
        return '0'
    end
    ending_add(e, name, job, pieces, outputs_of(outputs))
    return job.jobs == 1 and '1' or string.rep('1', job.jobs)
end

-- The same for a packet that is not pending as a whole: those of its jobs end that have not yet.
-- References to segments are counted for all, with the first; too many go with their bucket.
local function finish_each(e, pieces, outputs, resent, finder)
    local digits = {}
    each_piece(pieces, function(id, from, to)
        local stub, piece = call('HGET', K.pending, id), sub(pieces, from - PIECE_HEAD, to)
        local digit = '0'
        if stub then
            digit = finish_one(e, id, stub, piece, outputs, finder)
            outputs = '0'
        elseif resent then
            local _, was = recorded(id)
            if was == piece then digit = '1' end
        end
        digits[#digits + 1] = digit
    end)
    return concat(digits)
end

local function finish(keys, args)
    start(keys, args)
    local name, resent, asked, n = args[2], sub(args[4], 1, 1) == '1', sub(args[4], 3), #args
    local lost = lapsed(name, args[3])
    if lost then return lost end
    if n % 3 ~= 1 then return redis.error_reply('ERR finish takes three arguments for each job') end
    local names, count = {}, 0
    for i = 5, n, 3 do
        count = count + 1
        names[count] = args[i]
    end
    local e, digits, seen, finder = ending_new(), {}, {}, running_finder(1)
    local stubs = stubs_alone(names)
    for i = 1, count do
        local one, stub, pieces, outputs = names[i], stubs[i], args[3 + 3 * i], args[4 + 3 * i]
        local digit = '0'
        if stub and not seen[one] then
            seen[one] = true
            digit = finish_one(e, one, stub, pieces, outputs, finder)
        elseif is_packet(one) then
            digit = finish_each(e, pieces, outputs, resent, finder)
        elseif resent then
            local _, was = recorded(one)
            if was == pieces then digit = '1' end
        end
        digits[i] = digit
    end
    local left = ending_commit(e, name)
    if asked ~= '' and left <= 0 then
        call('HSET', K.idle, name, asked)
        digits[count + 1] = 'i'
    elseif sub(args[4], 1, 1) == '2' then
        call('RPUSH', K.wake_of .. name, '1')
    end
    return concat(digits)
end

local function progress(keys, args)
    start(keys, args)
    local lost = lapsed(args[2], args[3])
    if lost then return lost end
    if not tonumber(args[4]) then return redis.error_reply('ERR progress: no number') end
    local digits, fields = {}, {}
    for i, stub in ipairs(get_many(K.pending, args, 5)) do
        local whole_stub = stub or call('HGET', K.pending, sub(args[4 + i], 1, PACKET))
        digits[i] = whole_stub and '1' or '0'
        if stub then fields[#fields + 1], fields[#fields + 2] = args[4 + i], args[4] end
    end
    call_many('HSET', K.prog_of .. args[2], fields)
    return concat(digits)
end

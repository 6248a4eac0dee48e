-- What workers call but for turn: their leases, what they hold and note. Read next: register.lua.

-- The worker has its name for as long as a lease lasts.
local function lease(name, epoch)
    call('HSET', K.claims_of .. name, '!', epoch .. ' ' .. whole(now + L.lease_ms * 1000))
end

local function register(keys, args)
    start(keys, args)
    local name, class, info, identity = args[2], args[3], args[4], args[5]
    if not info_ok(info) then return redis.error_reply('ERR register: INFO is no JSON object') end
    if class ~= '1' and class ~= '2' then return redis.error_reply('ERR register: no CLASS') end
    settle(keys[1])
    call('SETNX', K.store, identity)
    local store = call('GET', K.store)
    if store ~= identity then return redis.error_reply('STORE ' .. store) end
    recover(name)
    local epoch = call('HINCRBY', K.state, 'epoch', 1)
    lease(name, epoch)
    call('HSET', K.workers, name, class .. ' ' .. epoch .. ' ' .. info)
    return {now, epoch}
end

local function renew(keys, args)
    start(keys, args)
    local name, epoch, info = args[2], args[3], args[4]
    settle(keys[1])
    local lost = lapsed(name, epoch)
    if lost then
        housekeeping()
        return lost
    end
    lease(name, epoch)
    local was = call('HGET', K.workers, name) or '0'
    local is = sub(was, 1, 1) .. ' ' .. epoch .. ' ' .. info
    if is ~= was and info_ok(info) then call('HSET', K.workers, name, is) end
    local facts = housekeeping()
    facts[#facts + 1] = L.text
    return facts
end

local function release(keys, args)
    start(keys, args)
    local lost = lapsed(args[2], args[3])
    if lost then return lost end
    recover(args[2], true)
    return 0
end

-- A worker that has connected anew tells what it holds: what it was given in the turn SEQ, or was handed for
-- it since, and the jobs that follow. This may be a master that was a replica, and a little behind: it lacks ends that another has
-- acknowledged, and has handed over jobs in answer to turns that the worker had another answer to. As
-- long as the worker lives nobody else would ask for these. They go back. What it was given in later turns it
-- did not know of when it told this, which may come late.
local function holds(keys, args)
    start(keys, args)
    local name, label, told = args[2], '0 ' .. args[4], tonumber(args[4]) or 0
    local lost = lapsed(name, args[3])
    if lost then return lost end
    local key, kept, back = K.claims_of .. name, {}, {}
    for i = 5, #args do kept[args[i]], kept[sub(args[i], 1, BATCH_ENTRY)] = true, true end
    local all = call('HGETALL', key)
    for i = 1, #all, 2 do
        local one, its = all[i], all[i + 1]
        local later = told > 0 and tonumber(match(its, ' (%d+)$') or 0) > told
        if byte(one) > 64 and its ~= label and not later then
            if not kept[one] then
                back[#back + 1] = one
            elseif is_batch_entry(one) then -- maybe not all of it is kept
                open_batch_entries({one})
                call('HDEL', key, one)
                for _, id in ipairs(resolve({one})) do
                    if kept[id] then claim_note(name, {id}, its, {}) else back[#back + 1] = id end
                end
            end
        end
    end
    call_many('HDEL', key, back)
    serve(give_back(back))
    return #back
end

-- What the worker itself notes with HSET, and tells as well.
function Record.events.begin(keys, args)
    start(keys, args)
    local name, thread, text = args[2], args[4], args[5]
    local lost = lapsed(name, args[3])
    if lost then return lost end
    call('HSET', K.claims_of .. name, '@' .. thread, text)
    local us, rest = match(text, '^%d+\n(%d+)([^\n]*)')
    local names = {}
    for one in gmatch(rest or '', '%S+') do names[#names + 1] = one end
    Record.events.running(name, us, names)
    return 0
end

local function progress(keys, args)
    start(keys, args)
    local lost = lapsed(args[2], args[3])
    if lost then return lost end
    local text, left = match(args[4], '^(%S+) ?(%d*)$')
    local progress = tonumber(text)
    if not (progress and progress >= 0 and progress <= 1) or #left > 15 then
        return redis.error_reply('ERR progress: no number from 0 to 1')
    end
    left = left ~= '' and ' ' .. whole(now + left) or ''
    local digits, fields, yields = {}, {}, {}
    local key = K.claims_of .. args[2]
    for i = 5, #args do fields[i - 4] = '%' .. args[i] end
    local before = get_many(key, fields)
    fields = {}
    for i, meta in ipairs(get_many(K.pending, args, 5)) do
        local whole_meta = meta or call('HGET', K.pending, sub(args[4 + i], 1, BATCH_ENTRY))
        local its = whole_meta and yields_to(args[2], args[4 + i], yields)
        digits[i] = its and '1' or '0'
        if meta and its then -- the progress of a job that begins again here does not fall
            local was = match(before[i] or '', '^%S+')
            fields[#fields + 1] = '%' .. args[4 + i]
            fields[#fields + 1] = ((tonumber(was) or 0) > progress and was or text) .. left
        end
    end
    if #fields > 0 then call('HSET', key, '%', '1') end
    call_many('HSET', key, fields)
    if Record.events.watched() then
        local _, started = running_finder(1)(args[5] or '')
        local names = {unpack(args, 5, min(#args, 4 + MANY))}
        Record.events.running(args[2], started, names, true)
    end
    return concat(digits)
end

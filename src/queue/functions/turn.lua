-- The turn: the one exchange by which a worker ends jobs and comes by others. Read next: workers.lua.

local SEGMENT = 16 -- characters of a segment's name

-- What N OUTPUTS say: how many records, bytes, where these lie, as completion_add takes it, and which
-- outputs became tensors; nil where they are malformed.
local function outputs_of(text)
    if text == '1 0' then return 1, 0, '' end
    local n, bytes, segs, kept = match(text, '^(%d+) (%d+) ?([%x ]*)(.*)$')
    n, bytes = count_of(n), count_of(bytes, Record.BYTES_MOST)
    if not n or not bytes or not find(kept, '^\t') and kept ~= '' then return nil end
    for seg, jobs in gmatch(segs, '(%x*) ?(%x*) ?') do
        if seg ~= '' and (#seg ~= SEGMENT or not count_of(jobs, n)) then return nil end
    end
    for id, its_bytes in gmatch(kept, '\t(%w*) ?(%w*)') do
        if #id ~= ID or byte(id) ~= 116 or not count_of(its_bytes, Record.BYTES_MOST) then return nil end
    end
    return n, bytes, segs, kept ~= '' and kept or nil
end

-- Why the arguments of a turn are none, or nil. To be asked before anything is done: an error in the
-- midst of it would leave what came before.
local LEADS = {['0'] = {false, false}, ['1'] = {true, false}, ['2'] = {false, true}, ['3'] = {true, true}}
local function turn_wrong(args, seq, demand, leads)
    if #args % 3 ~= 0 then return 'three arguments for each completion' end
    if #args[4] ~= 1 or not find(args[4], '%d') or not seq or not demand or not leads then
        return 'numbers for THREAD SEQ CLASS MAX ROOM LEADS'
    end
    for i = 12, #args, 3 do
        if not outputs_of(args[i]) then return 'OUTPUTS as they are told' end
    end
end

local end_all, yields_to
do

-- Whether that worker may end the job, or the batch entry. What it does not hold it may where nobody else
-- does: a master that was a replica may lack its claim, and then its name stays in a line, as that of any job
-- that ends there. But such a master may have given the job to another, whose it is then, with the result's
-- name. `seen`: what is known of batch entries, by their names.
yields_to = function(worker, name, seen)
    local entry = sub(name, 1, BATCH_ENTRY)
    if seen[entry] == nil then seen[entry] = call('HEXISTS', K.claims_of .. worker, entry) == 1 end
    if seen[entry] or call('HEXISTS', K.claims_of .. worker, name) == 1 then return true end
    for _, other in ipairs(call('HKEYS', K.workers)) do
        local its = call('HMGET', K.claims_of .. other, name, entry)
        if its[1] or its[2] then return false end
    end
    return true
end

-- Ends a job, or a batch entry, as its worker says; the digit for each of its jobs.
local function end_one(e, name, meta, record_frames, bytes, segs, kept)
    local job = parse(meta)
    if job.deadline ~= 0 and job.deadline <= now then
        e.finder = e.finder or running_finder(1)
        completion_add_summary(e, name, job, 'expired', 'deadline_exceeded', e.finder)
        return '0'
    end
    completion_add(e, name, job, record_frames, bytes, segs)
    if e.settles then settle_share(e, e.class, job, record_frames) end
    if kept then
        e.kept = e.kept or {}
        e.kept[#e.kept + 1] = {job.tenant, kept}
    end
    return job.jobs == 1 and '1' or string.rep('1', job.jobs)
end

-- What has ended in a turn, `seen`: a job, true; a batch entry, as a whole, or some of its jobs by themselves.
local WHOLE, APART = 1, 2

-- The meta of a job that ends by itself; false where it is not pending, or this turn has ended it already.
local function meta_once(seen, id)
    local entry = sub(id, 1, BATCH_ENTRY)
    if seen[id] or seen[entry] == WHOLE then return false end
    seen[id], seen[entry] = true, APART
    return metas_alone({id})[1]
end

-- The same for records of a batch entry that does not end as a whole: those of its jobs end that have
-- not yet. Their records may go at different times, so each tells which segment it refers to; where
-- one does not, references are counted for all, with the first, and too many go with it.
-- `worker`: see yields_to; nil: it has all. `ended`: names of jobs, appended to.
local function end_each(e, record_frames, bytes, segs, ended, worker, seen)
    local digits, ids, held = {}, {}, {}
    each_record_frame(record_frames, function(id, from, to) ids[#ids + 1] = {id, from, to} end)
    for i, one in ipairs(ids) do
        local id = one[1]
        local meta = (not worker or yields_to(worker, id, held)) and meta_once(seen, id)
        digits[i] = '0'
        ended[#ended + 1] = id
        if meta then
            local its_bytes, its_segs = bytes, segs
            local seg, held = Record.slice(record_frames, one[2])
            if seg then
                its_bytes, its_segs = held, seg ~= '' and seg .. ' 1' or ''
            else
                bytes, segs = 0, ''
            end
            digits[i] = end_one(e, id, meta, sub(record_frames, one[2] - RECORD_FRAME_HEAD, one[3]), its_bytes,
                                its_segs)
        end
    end
    return concat(digits)
end

-- The worker does not hold these any more. Where they are jobs of a batch entry that it holds, the
-- others are held by themselves from now on.
local function let_go(worker, names)
    local key, gone = K.claims_of .. worker, 0
    for i = 1, #names, MANY do
        gone = gone + call('HDEL', key, unpack(names, i, min(i + MANY - 1, #names)))
    end
    if gone == #names then return end
    for _, one in ipairs(names) do
        local batch_entry = sub(one, 1, BATCH_ENTRY)
        local label = call('HGET', key, batch_entry)
        if label then
            call('HDEL', key, batch_entry)
            claim_note(worker, resolve({batch_entry}), label, {})
        end
    end
end

-- Ends jobs and batch entries as the COMPLETIONS from args[from] on say, and gives back those that the worker
-- could not read; a digit for each job that it says has ended. `held`: three others, then of each whether the worker holds it;
-- `reports`: whether it has told of the progress of any.
end_all = function(worker, args, from, held, reports)
    if #args < from then return '' end
    local names, digits, ended, back = {args[from]}, {nil}, {nil}, {}
    for i = from + 3, #args, 3 do names[#names + 1] = args[i] end
    local e, seen, yields = completion_new(), {x = nil}, {}
    if e.settles then e.class = sub(call('HGET', K.workers, worker) or '1', 1, 1) end
    for i, meta in ipairs(get_many(K.pending, names)) do
        local one, record_frames, its = names[i], args[from + 3 * i - 2], held[i + 3]
        local n, bytes, segs, kept = outputs_of(args[from + 3 * i - 1])
        if record_frames == '' then
            if its and not back[one] then back[#back + 1], back[one] = one, true end
        elseif not is_batch_entry(one) then
            meta = not seen[one] and (its or yields_to(worker, one, yields)) and (meta or meta_once(seen, one))
            seen[one], ended[#ended + 1] = true, one
            digits[i] = meta and end_one(e, one, meta, record_frames, bytes, segs, kept) or '0'
        elseif meta and not seen[one] and n == parse(meta).jobs and (its or yields_to(worker, one, yields)) then
            seen[one], ended[#ended + 1] = WHOLE, one
            digits[i] = end_one(e, one, meta, record_frames, bytes, segs)
        else
            digits[i] = end_each(e, record_frames, bytes, segs, ended, not its and worker, seen)
        end
        digits[i] = digits[i] or ''
    end
    completion_commit(e)
    let_go(worker, ended)
    digits = concat(digits)
    if reports then
        local fields = {}
        for i, name in ipairs(ended) do fields[i] = '%' .. name end
        call_many('HDEL', K.claims_of .. worker, fields)
    end
    if #back > 0 then -- batch entries opened, for it may be one of damaged record frames that could not be read
        open_batch_entries(back)
        let_go(worker, back)
        call_many('HDEL', K.claims_of .. worker, (resolve(back))) -- where a job of it has ended just now
        serve(give_back(back))
    end
    return digits
end

end

-- What the worker was given in the turn `label`, which it is given again: taken from what it holds.
local function taken_back(worker, label)
    local names, all = {}, call('HGETALL', K.claims_of .. worker)
    for i = 1, #all, 2 do
        if all[i + 1] == label and byte(all[i]) > 64 then names[#names + 1] = all[i] end
    end
    call_many('HDEL', K.claims_of .. worker, names)
    return names
end

-- The fields of the state that a turn needs: where its thread stands, and those in which it counts what ends, as a
-- rule: how many have succeeded, by operation.
local function turn_fields(args)
    local fields, last = {'numbers', 'idle', 't:' .. (args[2] or '') .. ':' .. (args[4] or ''), nil}, nil
    for i = 11, min(#args, 40), 3 do
        local op = Record.op(args[i], RECORD_FRAME_HEAD + 1)
        if op and op ~= last then last, fields[#fields + 1] = op, op .. ' succeeded' end
    end
    return fields
end

local function turn(keys, args)
    start(keys, args, turn_fields)
    local name, thread, seq = args[2], args[4], args[5]
    local wants = args[6] .. ' ' .. args[7] .. ' ' .. args[8]
    local demand, leads, number = Idle.demand(wants), LEADS[args[9]], count_of(seq)
    local fields, n = {'!', '%', '$', args[10]}, 4
    for i = 13, #args, 3 do n, fields[n + 1] = n + 1, args[i] end
    local held = get_many(K.claims_of .. name, fields)
    local lost = lapsed(name, args[3], held[1] or '')
    if lost then return lost end
    local wrong = turn_wrong(args, number, demand, leads)
    if wrong then return redis.error_reply('ERR turn takes ' .. wrong) end
    local last, given, digits = match(State.field(3) or '', '^(%d+) (%d+) (.*)$')
    local reports, handed = held[2], last and held[3] == last
    local newer = number - (last and tonumber(last) or 0)
    if newer < 0 then return redis.error_reply('ERR an earlier turn, which came late') end
    local c, label = nil, thread .. ' ' .. seq
    if thread == '0' then -- what it waited for, as far as is known here, it does not wait for any more
        Idle.drop(name)
        if handed and (newer == 0 or not leads[2]) then call('DEL', K.wake_of .. name) end
    end
    if newer > 0 then
        digits = end_all(name, args, 10, held, reports)
    else -- its reply was lost, or has not come: made anew
        c = claim_new(demand, math.huge)
        c.most = math.huge
        for _, entry in ipairs(look_up(c, taken_back(name, label))) do
            claim_add(c, unpack(entry, 1, 3))
        end
    end
    given = given or '0'
    if demand.most > 0 and not (c and c.count > 0) then
        if has_waiting(demand.class) then
            c = claim_new(demand, math.huge)
            claim_take(c, demand.class, tonumber(given))
        end
        if c and c.count > 0 then
            given = whole(given + 1)
        else
            given = '0' -- an empty queue starves nobody
            Idle.add(name, thread, seq, wants, demand)
        end
    end
    State.change(3, seq .. ' ' .. given .. ' ' .. digits)
    if not c or c.count == 0 then return {Record.events.clock(), digits} end
    claim_note(name, c.names, label, {})
    c.reply[2] = digits
    if leads[1] then call('RPUSH', K.wake_of .. name, '1') end
    return c.reply
end

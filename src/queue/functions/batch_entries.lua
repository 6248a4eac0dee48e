-- Batch entries: small jobs that share an entry of the queue, and what becomes of them when one of them
-- is dealt with alone. Read next: events.lua.

local Tensor = {} -- what others need of tensors.lua: Lua lets a file have 200 local names

local function is_batch_entry(name) return #name == BATCH_ENTRY end

-- each(id, from, to): what follows the head of each record frame lies there. What is not well formed ends
-- the walk.
local function each_record_frame(record_frames, each)
    local at, most = 1, #record_frames
    while at + RECORD_FRAME_HEAD - 1 <= most do
        local last = at + RECORD_FRAME_HEAD - 1 + struct.unpack('<I4', record_frames, at)
        if last > most then return end
        each(sub(record_frames, at + 4, at + RECORD_FRAME_HEAD - 1), at + RECORD_FRAME_HEAD, last)
        at = last + 1
    end
end

-- Where the record frame of the job `id` begins, and where it ends; nil where there is none.
local function find_record_frame(record_frames, id)
    local at, most, hit = 1, #record_frames, find(record_frames, id, 1, true)
    while hit and at + RECORD_FRAME_HEAD - 1 <= most do
        local last = at + RECORD_FRAME_HEAD - 1 + struct.unpack('<I4', record_frames, at)
        if last > most then return nil end
        if hit == at + 4 then return at, last end
        if hit < at + 4 then -- those bytes only looked like it
            hit = find(record_frames, id, at + 4, true)
        else
            at = last + 1
        end
    end
    return nil
end

-- The ids of a batch entry's jobs.
local function batch_entry_ids(batch_entry)
    local ids = {}
    each_record_frame(frame_of(batch_entry), function(id) ids[#ids + 1] = id end)
    return ids
end

-- Opens a pending batch entry: its jobs become entries of their own. Returns their ids.
local function open_batch_entry(batch_entry, meta)
    local record_frames, job = frame_of(batch_entry), parse(meta)
    local single = gsub(meta, '^([^\t]*) x%d+\t', '%1\t', 1)
    local fields, ids, seen = {}, {}, {}
    each_record_frame(record_frames, function(id, from, to)
        local n = #ids
        if seen[id] or sub(id, 1, BATCH_ENTRY) ~= batch_entry or find(id, '[^0-9a-f]', BATCH_ENTRY) then return end
        seen[id] = true
        ids[n + 1] = id
        fields[4 * n + 1], fields[4 * n + 2] = id, single
        fields[4 * n + 3], fields[4 * n + 4] = frame_field(id), sub(record_frames, from, to)
    end)
    call('HDEL', K.pending, batch_entry, frame_field(batch_entry))
    call_many('HSET', K.pending, fields)
    if job.tenant ~= NOBODY then
        call('SREM', K.names_of .. job.tenant, batch_entry)
        call_many('SADD', K.names_of .. job.tenant, ids)
    end
    if job.holds then Tensor.share_out(job.holds, #ids - 1) end
    if #ids > 0 then call('HSET', K.opened, batch_entry, now_text .. ' ' .. concat(ids, ' ')) end
    local missing = #ids - job.jobs -- where its record frames are damaged
    S.jobs, S.bytes = S.jobs + missing, S.bytes + missing * job.cost
    S.results = S.results + missing * job.result
    if missing ~= 0 and job.metered then meter(job.tenant, missing, missing * job.cost, missing * job.result) end
    if missing ~= 0 and job.seg ~= '' then refer(job.seg, missing) end
    return ids
end

-- Opens those of the names that are pending batch entries, where `only` is given those that are its keys.
local function open_batch_entries(names, only)
    for i, meta in ipairs(get_many(K.pending, names)) do
        local name = names[i]
        if meta and is_batch_entry(name) and (not only or only[name]) then open_batch_entry(name, meta) end
    end
end

-- The meta, unless it is another tenant's: that one's jobs are looked for, and not found, as those
-- that never were. `tenant` nil: anybody's will do.
local function own(meta, tenant)
    return meta and (not tenant or parse(meta).tenant == tenant) and meta
end

-- The metas of jobs, false where one is not pending; batch entries that they are in are opened.
local function metas_alone(ids, from, tenant)
    from = from or 1
    local metas, opened = get_many(K.pending, ids, from), false
    for i, meta in ipairs(metas) do
        meta = own(meta, tenant)
        if not meta then
            local id = ids[from + i - 1]
            local batch_entry = sub(id, 1, BATCH_ENTRY)
            local whole_meta = own(call('HGET', K.pending, batch_entry), tenant)
            if whole_meta and id ~= batch_entry then
                open_batch_entry(batch_entry, whole_meta)
                opened = true
            end
            if opened then meta = own(call('HGET', K.pending, id), tenant) end
        end
        metas[i] = meta
    end
    return metas
end

-- What names stand for: the names of what is pending of it, and their metas. In the place of an
-- opened batch entry are its jobs.
local function resolve(names)
    local found, metas = {}, {}
    for i, meta in ipairs(get_many(K.pending, names)) do
        if meta then
            found[#found + 1], metas[#metas + 1] = names[i], meta
        elseif is_batch_entry(names[i]) then
            local ids = {}
            for id in gmatch(call('HGET', K.opened, names[i]) or '', '%a%x+') do ids[#ids + 1] = id end
            for k, one in ipairs(get_many(K.pending, ids)) do
                if one then found[#found + 1], metas[#metas + 1] = ids[k], one end
            end
        end
    end
    return found, metas
end

-- Forgets opened batch entries of which no job is pending: some of them at a time.
local function forget_opened()
    if call('EXISTS', K.opened) == 0 then return end
    local r = call('HSCAN', K.opened, K.opened_cursor or '0', 'COUNT', 100)
    K.opened_cursor = r[1]
    for i = 1, #r[2], 2 do
        if #resolve({r[2][i]}) == 0 then call('HDEL', K.opened, r[2][i]) end
    end
end

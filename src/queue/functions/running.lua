-- Which workers live, what they hold, and which jobs run. Read next: batch_entries.lua.

-- Whether the worker has its lease, of that epoch where one is given: "EPOCH TILL" among what it holds.
local last_lease, last_epoch, last_till = '', nil, 0
local function is_alive(worker, epoch, lease)
    lease = lease or call('HGET', K.claims_of .. worker, '!') or ''
    if lease ~= last_lease then
        last_lease, last_epoch, last_till = lease, match(lease, '^(%d+) (%d+)$')
        last_till = tonumber(last_till or 0)
    end
    return last_epoch ~= nil and last_till > now and (not epoch or last_epoch == epoch)
end

-- Which jobs run: what the live workers have noted as begun

-- The lines "US NAME ..." that the threads of a worker have noted. One that has lost the name to
-- another may have written last: such a text is not looked at.
local function begun_lines(name)
    local all, epoch = {}, nil
    for _, text in ipairs(call('HMGET', K.claims_of .. name, '@0', '@1', '@2', '@3', '@4')) do
        local its, lines = match(text or '', '^(%d+)\n(.*)$')
        epoch = epoch or its and match(call('HGET', K.workers, name) or '', '^%S+ (%S+)')
        if its and its == epoch then all[#all + 1] = lines end
    end
    return concat(all, '\n')
end

-- What a worker has claimed.
local function claimed_names(name)
    local names = {}
    for _, field in ipairs(call('HKEYS', K.claims_of .. name)) do
        if byte(field) > 64 then names[#names + 1] = field end -- not one of its threads
    end
    return names
end

-- The same, and as keys of the second result what has begun.
local function holdings(name)
    local begun = {}
    for line in gmatch(begun_lines(name), '[^\n]+') do
        for one in gmatch(match(line, '^%d+(.*)$') or '', '%S+') do begun[one] = true end
    end
    return claimed_names(name), begun
end

-- Whether a text of names names the job: by its id, or by its batch entry.
local function names_job(text, id)
    if find(text, id, 1, true) then return true end
    local entry = sub(id, 1, BATCH_ENTRY)
    local from, to = find(text, entry, 1, true)
    while from do
        local behind = byte(text, to + 1)
        if not behind or behind <= 32 then return true end -- else it is the id of another job of it
        from, to = find(text, entry, to + 1, true)
    end
    return false
end

-- A finder: finder(id) gives the worker's name and the start, or nil. It will be asked for `count`
-- ids.
local function running_finder(count)
    local texts, index
    return function(id)
        if not texts then
            texts = {}
            for _, name in ipairs(call('HKEYS', K.workers)) do
                local text = begun_lines(name)
                if text ~= '' then texts[#texts + 1] = {name, text} end
            end
            if count > 16 then
                index = {}
                for _, pair in ipairs(texts) do
                    for line in gmatch(pair[2], '[^\n]+') do
                        local us, rest = match(line, '^(%d+)(.*)$')
                        for one in gmatch(rest or '', '%S+') do index[one] = {pair[1], us} end
                    end
                end
            end
        end
        if index then
            local hit = index[id] or index[sub(id, 1, BATCH_ENTRY)]
            if hit then return hit[1], hit[2] end
            return nil
        end
        for _, pair in ipairs(texts) do
            if names_job(pair[2], id) then
                for line in gmatch(pair[2], '[^\n]+') do
                    if names_job(line, id) then return pair[1], match(line, '^%d+') end
                end
            end
        end
        return nil
    end
end

local function device_of(worker)
    devices = devices or {}
    if devices[worker] then return devices[worker] end
    devices[worker] = ''
    local text = call('HGET', K.workers, worker)
    local ok, info = pcall(cjson.decode, match(text or '', '^%S+ %S+ (.*)$') or '')
    if ok and type(info) == 'table' and type(info.id) == 'string' and not find(info.id, '%c') then
        devices[worker] = info.id
    end
    return devices[worker]
end

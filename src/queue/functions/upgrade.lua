-- What the library of schema 5 left: one list for each class and priority, and records that lie
-- together whoever's they are. All of it is the one tenant's that there was. Read next: front_ends.lua.

local upgrade
do

-- Those in the lists of schema 5, and how many of them each list had.
local function upgrade_lists()
    for si, key in pairs(K.wait) do
        local old, line = sub(key, 1, -2), si .. ' ' .. NOBODY
        if call('EXISTS', old) == 1 then
            call('RENAME', old, line_key(line))
            compact(line)
        end
        call('HDEL', K.count, si)
    end
end

-- A place that has a tenant is none of schema 5: an emptied Redis has lost the mark that says so,
-- and may have taken jobs before the next connection comes here.
local function upgrade_records()
    local seconds, all = sub(K.seconds_of, 1, -2), {}
    local found = call('ZRANGE', K.recs, 0, -1, 'WITHSCORES')
    for i = 1, #found, 2 do
        if not match(found[i], ':.*:') then all[#all + 1], all[#all + 2] = found[i], found[i + 1] end
    end
    for i = 1, #all, 2 do
        local place, expires = all[i], all[i + 1]
        local bucket, bytes = place .. ':' .. NOBODY, call('HGET', K.recbytes, place)
        for _, of in ipairs({K.rec_of, K.out_of, K.seg_of, K.keys_of}) do
            if call('EXISTS', of .. place) == 1 then call('RENAME', of .. place, of .. bucket) end
        end
        call('ZREM', K.recs, place)
        call('ZADD', K.recs, expires, bucket)
        call('SADD', K.tenants_of .. place, NOBODY)
        if bytes then
            call('HDEL', K.recbytes, place)
            call('HSET', K.recbytes, bucket, bytes)
        end
    end
    if call('EXISTS', seconds) == 1 then call('RENAME', seconds, K.seconds_of .. NOBODY) end
end

-- What is kept beside records and tensors to find some of them by, made of these.
local function upgrade_records_index()
    call('DEL', K.outs, K.sync)
    for _, bucket in ipairs(call('ZRANGE', K.recs, 0, -1)) do
        local kind, b, tenant = match(bucket, '^(%a):(%d+):(.*)$')
        for _, id in ipairs(call('HKEYS', K.out_of .. bucket)) do call('HSET', K.outs, id, bucket) end
        for _, key in ipairs(call('HVALS', K.keys_of .. bucket)) do call('EXPIRE', key, L.ttl[kind]) end
        if kind == 's' then
            call('ZADD', K.sync_of .. tenant, b, b)
            if tenant ~= NOBODY then
                call('ZINCRBY', K.sync, call('HGET', K.recbytes, bucket) or '0', tenant)
            end
        end
    end
end

-- Once in the life of a queue, and after one of an earlier release.
upgrade = function()
    upgrade_lists()
    upgrade_records()
    upgrade_records_index()
    Tensor.reindex()
end

end

-- Records what is to be recorded of the queue, where it is not.
local function settle(keys, anew)
    if settle_record(keys[1], anew) then upgrade() end
end

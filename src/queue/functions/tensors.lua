-- Tensors that are kept by their ids, and the blobs that pending jobs refer to. Read next:
-- completions.lua.

local Wait = {}   -- the same of waiting.lua
do

-- What is kept of a tensor: "BYTES LIFE CREATED TENANT FORM", see contract.lua.
local function facts_of(id)
    local text = call('HGET', K.tensors, id)
    if not text then return nil end
    local bytes, life, created, tenant, form = match(text, '^(%d+) (%d+) (%d+) (%S+) (.*)$')
    if not bytes then return nil end -- what nothing here has written
    return {bytes = tonumber(bytes), life = tonumber(life), created = created, tenant = tenant,
            form = form}
end

local function blob_of(id) return id .. '.in' end
local function is_held(id) return call('HEXISTS', K.refs, blob_of(id)) == 1 end
local function bytes_of(tenant) return tonumber(call('HGET', K.tensor_bytes, tenant) or 0) end
local ALL = ':' -- of all tenants: none has such a name

-- Many jobs of one call may refer to the same tensor: once is enough.
local touched, touched_at = {}, ''
local function touch(id, facts)
    if touched_at ~= now_text then touched, touched_at = {}, now_text end
    if touched[id] == facts.life then return end
    touched[id] = facts.life
    call('ZADD', K.tensor_uses, now_text, id)
    call('ZADD', K.tensor_uses .. ':' .. facts.tenant, now_text, id)
    call('ZADD', K.tensor_ends, whole(floor(now / 1000000) + facts.life), id)
end

local function count_bytes(tenant, by)
    for _, of in ipairs({ALL, tenant}) do
        if call('HINCRBY', K.tensor_bytes, of, whole(by)) <= 0 then
            call('HDEL', K.tensor_bytes, of)
        end
    end
end

local function write(id, facts)
    call('HSET', K.tensors, id, concat({whole(facts.bytes), whole(facts.life), facts.created,
                                        facts.tenant, facts.form}, ' '))
end

-- A tensor that is there already was put by this very call, whose reply was lost.
local function add(tenant, life, id, bytes, form)
    if call('HEXISTS', K.tensors, id) == 1 then return end
    local facts = {bytes = tonumber(bytes), life = life, created = now_text, tenant = tenant,
                   form = form}
    write(id, facts)
    touch(id, facts)
    call('ZADD', K.tensor_names .. ':' .. tenant, 0, now_text .. id)
    count_bytes(tenant, facts.bytes)
    call('DEL', K.hold_of .. blob_of(id))
end

-- Its bytes stay, and count, as long as a pending job refers to them.
local function drop(id, facts)
    touched[id] = nil
    call('HDEL', K.tensors, id)
    call('HDEL', K.tensor_copies, id)
    call('ZREM', K.tensor_uses, id)
    call('ZREM', K.tensor_ends, id)
    call('ZREM', K.tensor_uses .. ':' .. facts.tenant, id)
    call('ZREM', K.tensor_names .. ':' .. facts.tenant, (facts.created or '') .. id, id)
    if is_held(id) then
        call('HSET', K.left, blob_of(id), whole(facts.bytes) .. ' ' .. facts.tenant)
        return 0
    end
    count_bytes(facts.tenant, -facts.bytes)
    return 1
end

-- The same of what a job has made, whose record may go: it counts among the results of the kind.
function Tensor.leave(name, bytes, tenant, kind)
    if call('HSETNX', K.left, name, whole(bytes) .. ' ' .. tenant .. ' ' .. kind) == 1 then
        Tensor.weigh(kind, tenant, bytes)
    end
end

-- No pending job refers to it any more.
function Tensor.let_go(name)
    local bytes, tenant, kind = match(call('HGET', K.left, name) or '', '^(%d+) (%S+) ?(%a?)$')
    if not bytes then return end
    call('HDEL', K.left, name)
    if kind == '' then count_bytes(tenant, -bytes) else Tensor.weigh(kind, tenant, -bytes) end
end

-- Adds to `old` what was not used for longest, so many bytes and tensors, but what pending jobs refer to
-- and what is in there already; whether there was so much. `uses` is the key of a tenant's uses, or of all.
local AT_ONCE = 64
local function choose_old(old, uses, bytes, count)
    local from = 0
    while bytes > 0 or count > 0 do
        local ids = call('ZRANGE', uses, from, from + AT_ONCE - 1)
        if #ids == 0 then return false end
        from = from + #ids
        for _, id in ipairs(ids) do
            if (bytes > 0 or count > 0) and not old.has[id] and not is_held(id) then
                local facts = facts_of(id) or {bytes = 0, tenant = NOBODY}
                old[#old + 1], old.has[id], old.bytes = {id, facts}, true, old.bytes + facts.bytes
                bytes, count = bytes - facts.bytes, count - 1
            end
        end
    end
    return true
end

-- How many tensors one of several tenants may have.
local function share() return max(floor(L.tensors / 4 * 3), 1) end

-- Makes room for so many more; `most`: bytes of that tenant, 0: as many as there is room for. How many
-- blobs are free, and whether there is room; else nothing was dropped.
local function make_room(tenant, most, count, bytes)
    local old, freed = {has = {}, bytes = 0}, 0
    if most > 0 then
        local uses = K.tensor_uses .. ':' .. tenant
        if not choose_old(old, uses, bytes_of(tenant) + bytes - most,
                          call('ZCARD', uses) + count - share()) then return 0, false end
    end
    if not choose_old(old, K.tensor_uses, bytes_of(ALL) + bytes - old.bytes - L.tensor_bytes,
                      call('HLEN', K.tensors) + count - #old - L.tensors) then return 0, false end
    for _, one in ipairs(old) do freed = freed + drop(one[1], one[2]) end
    if freed > 0 then call('HINCRBY', K.totals, 'tensors evicted', freed) end
    return freed, true
end

function Tensor.put(keys, args)
    start(keys, args)
    local tenant, most, bytes, count = args[2], tonumber(args[3]), 0, 0
    local life, here = match(args[4], '^(%d+)( ?B?)$')
    life = tonumber(life)
    if #args % 3 ~= 1 then return redis.error_reply('ERR tensor_put takes three arguments each') end
    for i = 5, #args, 3 do
        if here == ' B' and call('HEXISTS', K.blobs, blob_of(args[i])) == 0 then return {4, now} end
        if call('HEXISTS', K.tensors, args[i]) == 0 then
            bytes, count = bytes + tonumber(args[i + 1]), count + 1
        end
    end
    if bytes > L.tensor_bytes or count > L.tensors then return {1, now} end
    if most > 0 and (bytes > most or count > share()) then return {2, now} end
    local _, good = make_room(tenant, most, count, bytes)
    if not good then return {3, now} end
    for i = 5, #args, 3 do add(tenant, life, args[i], args[i + 1], args[i + 2]) end
    return {0, now}
end

local function owned(tenant, id)
    local facts = facts_of(id)
    return facts and facts.tenant == tenant and facts or nil
end

-- The copies that devices keep of it: {worker, device, as {q}:tensor_copies has it}, ...
local function copies_of(id)
    local copies = {}
    for text in gmatch(call('HGET', K.tensor_copies, id) or '', '[^\t]+') do
        local ends, worker, device = match(text, '^(%d+) (%S+) (.+)$')
        if ends and tonumber(ends) > now then copies[#copies + 1] = {worker, device, text} end
    end
    return copies
end

-- The device that keeps one, with a tab before it, or "".
local function copy_of(id)
    local first = copies_of(id)[1]
    return first and '\t' .. first[2] or ''
end

local function told(id, facts)
    return concat({whole(facts.bytes), whole(facts.life), facts.created,
                   call('ZSCORE', K.tensor_uses, id) or facts.created,
                   call('ZSCORE', K.tensor_ends, id) or '0', facts.form}, ' ') .. copy_of(id)
end

-- What a worker says its device has copies of; it says so again while that is so.
function Tensor.copies(keys, args)
    start(keys, args)
    local worker = args[3]
    if #args[2] > 64 or find(args[2], '%c') then return redis.error_reply('ERR tensor_copies: no DEVICE') end
    local text = concat({whole(now + L.lease_ms * 1000), worker, args[2]}, ' ')
    for i = 4, #args do
        if call('HEXISTS', K.tensors, args[i]) == 1 then
            local texts = {}
            for _, copy in ipairs(copies_of(args[i])) do
                if copy[1] ~= worker then texts[#texts + 1] = copy[3] end
            end
            texts[#texts + 1] = text
            call('HSET', K.tensor_copies, args[i], concat(texts, '\t'))
        end
    end
    return 0
end

-- Of what is asked for to be used the life begins anew.
function Tensor.get(keys, args)
    start(keys, args)
    local reply = {}
    for i = 4, #args do
        local facts = owned(args[2], args[i])
        if facts and args[3] == '1' then touch(args[i], facts) end
        reply[i - 3] = facts and told(args[i], facts) or 404
    end
    return reply
end

function Tensor.life(keys, args)
    start(keys, args)
    local facts = owned(args[2], args[3])
    if not facts then return {404} end
    facts.life = tonumber(args[4])
    write(args[3], facts)
    touch(args[3], facts)
    return {told(args[3], facts)}
end

-- The last word on a tensor, with " held" behind it where its blob stays.
function Tensor.drop(keys, args)
    start(keys, args)
    local facts = owned(args[2], args[3])
    if not facts then return {404} end
    local text = told(args[3], facts)
    return {text, drop(args[3], facts)}
end

function Tensor.list(keys, args)
    start(keys, args)
    local tenant, limit, cursor = args[2], min(tonumber(args[3]), 100), args[4]
    local names = call('ZRANGE', K.tensor_names .. ':' .. tenant, cursor == '' and '+' or '(' .. cursor,
                       '-', 'BYLEX', 'REV', 'LIMIT', 0, limit + 1)
    local reply = {#names > limit and names[limit] or ''}
    for i = 1, min(#names, limit) do
        local id = sub(names[i], -ID)
        local facts = facts_of(id)
        reply[2 * i], reply[2 * i + 1] = id, facts and told(id, facts) or ''
    end
    return reply
end

-- What the worker says of outputs that become tensors, "\tID BYTES FORM...": kept in any case, for
-- the job has ended. Where others that are in use leave no room the next tick makes it.
function Tensor.keep(tenant, text)
    local most = tonumber(call('HGET', K.tensor_bytes, 'most ' .. tenant) or 0)
    for id, bytes, form in gmatch(text, '\t(t%x+) (%d+) ([^\t]+)') do
        if not L.strict or call('HEXISTS', K.tensors, id) == 0 then
            make_room(tenant, most, 1, tonumber(bytes))
            add(tenant, L.tensor_life_s, id, bytes, form)
        end
    end
end

function Tensor.quota(tenant, most)
    if most ~= '0' then call('HSET', K.tensor_bytes, 'most ' .. tenant, most) end
end

-- Whether there is what the texts of a submission name, "BLOB,BLOB...", for that tenant.
function Tensor.there(blobs, tenant, has_outputs)
    for id, kind in gmatch(blobs, '(%w+)%.(%a+)') do
        local is = kind == 'in' and owned(tenant, id) or kind == 'out' and has_outputs(id, tenant)
        if not is then return false end
    end
    return true
end

function Tensor.hold(job, blobs)
    call('HSET', K.holds, job, blobs)
    for blob in gmatch(blobs, '[^,]+') do
        refer(blob, 1)
        local id = sub(blob, 1, ID)
        local facts = facts_of(id)
        if facts then touch(id, facts) end
    end
end

-- Changes how many pending jobs refer to the blob; what nobody does any more is not kept for them.
local function refer_held(blob, by)
    if refer(blob, by) then return end
    Wait.forget(blob)
    Tensor.let_go(blob)
end

-- A batch entry was opened: each of its jobs holds what it held.
function Tensor.share_out(batch_entry, ids)
    local blobs = call('HGET', K.holds, batch_entry)
    if not blobs then return end
    for blob in gmatch(blobs, '[^,]+') do
        refer_held(blob, #ids - 1) -- none where its record frames are damaged, all of them
    end
    for _, id in ipairs(ids) do call('HSET', K.holds, id, blobs) end
    call('HDEL', K.holds, batch_entry)
end

-- These jobs have ended.
function Tensor.release(names)
    if call('EXISTS', K.holds) == 0 then return end
    for _, blobs in ipairs(get_many(K.holds, names)) do
        for blob in gmatch(blobs or '', '[^,]+') do
            refer_held(blob, -1)
            local id = sub(blob, 1, ID)
            local facts = facts_of(id)
            if facts then touch(id, facts) end
        end
    end
    call_many('HDEL', K.holds, names)
end

-- Whether there is such a tensor, or a pending job refers to the blob.
function Tensor.referred(id, blob)
    return call('HEXISTS', K.tensors, id) == 1 or call('HEXISTS', K.refs, blob) == 1
end

-- Drops those whose time is up, and makes room that was lacking; how many blobs are free.
function Tensor.tick()
    local freed = 0
    local old = call('ZRANGE', K.tensor_ends, '-inf', floor(now / 1000000), 'BYSCORE', 'LIMIT', 0, 100)
    for _, id in ipairs(old) do
        local facts = facts_of(id) or {bytes = 0, tenant = NOBODY, life = 1}
        if is_held(id) then touch(id, facts) else freed = freed + drop(id, facts) end
    end
    local more = bytes_of(ALL) > L.tensor_bytes and make_room('', 0, 0, 0) or 0
    return freed + more
end

end

-- Tensors that are kept by their ids, and the blobs that pending jobs refer to. Read next:
-- completions.lua.

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
local ALL = ':' -- of all tenants: none has such a name

-- The index of those that no pending job refers to, which may make room, and whose lives end: the first one is
-- the one that was not used for longest.
local function uses_of(tenant) return K.tensor_uses .. ':' .. tenant end

local function change(field, by)
    if by ~= 0 and call('HINCRBY', K.tensor_bytes, field, whole(by)) <= 0 then
        call('HDEL', K.tensor_bytes, field)
    end
end

-- It was used just now, and no pending job refers to it.
local function index(id, facts)
    if call('ZADD', uses_of(facts.tenant), now_text, id) == 1 then change('idle ' .. facts.tenant, facts.bytes) end
    call('ZADD', K.tensor_ends, whole(floor(now / 1000000) + facts.life), id)
end

local function unindex(id, facts)
    if call('ZREM', uses_of(facts.tenant), id) == 1 then change('idle ' .. facts.tenant, -facts.bytes) end
    call('ZREM', K.tensor_ends, id)
end

local function touch(id, facts)
    if not is_held(id) then index(id, facts) end
end

-- Bytes and tensors of that tenant, and of all, also of those that pending jobs will make.
function Tensor.count(tenant, bytes, tensors)
    for _, of in ipairs({ALL, tenant}) do
        change(of, bytes)
        change('#' .. of, tensors)
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
    Tensor.count(tenant, facts.bytes, 1)
    call('DEL', K.hold_of .. blob_of(id))
end

-- Its bytes stay, and count, as long as a pending job refers to them.
local function drop(id, facts)
    call('HDEL', K.tensors, id)
    call('HDEL', K.tensor_copies, id)
    unindex(id, facts)
    call('ZREM', K.tensor_names .. ':' .. facts.tenant, (facts.created or '') .. id, id)
    if is_held(id) then
        call('HSET', K.left, blob_of(id), whole(facts.bytes) .. ' ' .. facts.tenant)
        return 0
    end
    if facts.form then Tensor.count(facts.tenant, -facts.bytes, -1) end
    return 1
end

-- No pending job refers to it any more.
function Tensor.let_go(name)
    local bytes, tenant, kind, goes = match(call('HGET', K.left, name) or '', '^(%d+) (%S+) ?(%a?) ?(%d*)$')
    if not bytes then return end
    call('HDEL', K.left, name)
    if kind == '' then
        Tensor.count(tenant, -bytes, -1)
    else
        Kept.let_out_go(tonumber(bytes), tenant, kind, tonumber(goes))
    end
end

-- Makes room for so many more of that tenant, by dropping those of its own that were not used for longest;
-- `most`: bytes that it may have, 0: it is the only one. 0; or 1 they are more than all may be, 2 than its own,
-- 3 what is in use, and what others have, leaves no room, and nothing was dropped, 5 some were, and there are
-- more to drop.
local DROPPED = 256
function Tensor.make_room(tenant, most, bytes, tensors)
    local share = most > 0 and max(floor(L.tensors / 2), 1) or 0
    if bytes > L.tensor_bytes or tensors > L.tensors then return 1 end
    if most > 0 and (bytes > most or tensors > share) then return 2 end
    local has = call('HMGET', K.tensor_bytes, ALL, tenant, '#' .. ALL, '#' .. tenant, 'idle ' .. tenant)
    for i = 1, 5 do has[i] = tonumber(has[i] or 0) end
    local lacks = share_lacks(L.tensor_bytes, has[1], has[2], bytes, most)
    local lacking = share_lacks(L.tensors, has[3], has[4], tensors, share)
    if lacks <= 0 and lacking <= 0 then return 0 end
    local uses = uses_of(tenant)
    if lacks > has[5] or lacking > call('ZCARD', uses) then return 3 end
    local dropped = 0
    for _, id in ipairs(call('ZRANGE', uses, 0, DROPPED - 1)) do
        local facts = facts_of(id) or {bytes = 0, tenant = tenant}
        drop(id, facts)
        dropped, lacks, lacking = dropped + 1, lacks - facts.bytes, lacking - 1
        if lacks <= 0 and lacking <= 0 then break end
    end
    State.count('tensors evicted', dropped)
    if lacks <= 0 and lacking <= 0 then return 0 end
    if dropped == DROPPED then return 5 end
    call('HDEL', K.tensor_bytes, 'idle ' .. tenant) -- there are none
    return 3
end

function Tensor.put(keys, args)
    start(keys, args)
    local tenant, most, bytes, tensors = args[2], tonumber(args[3]), 0, 0
    local life, here = match(args[4], '^(%d+)( ?B?)$')
    life = tonumber(life)
    if #args % 3 ~= 1 then return redis.error_reply('ERR tensor put takes three arguments each') end
    for i = 5, #args, 3 do
        if here == ' B' and call('HEXISTS', K.blobs, blob_of(args[i])) == 0 then return {4, now} end
        if call('HEXISTS', K.tensors, args[i]) == 0 then
            bytes, tensors = bytes + tonumber(args[i + 1]), tensors + 1
        end
    end
    local code = Tensor.make_room(tenant, most, bytes, tensors)
    if code > 0 then return {code, now} end
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
                   call('ZSCORE', uses_of(facts.tenant), id) or now_text, -- it is in use
                   call('ZSCORE', K.tensor_ends, id) or whole(floor(now / 1000000) + facts.life),
                   facts.form}, ' ') .. copy_of(id)
end

-- What a worker says its device has copies of; it says so again while that is so.
function Tensor.copies(keys, args)
    start(keys, args)
    local worker, device = args[2], args[4]
    if not is_alive(worker, args[3]) then return redis.error_reply('LOST the lease of this worker has lapsed') end
    if #device > 64 or find(device, '%c') then return redis.error_reply('ERR copies: no DEVICE') end
    local text = concat({whole(now + L.lease_ms * 1000), worker, device}, ' ')
    for i = 5, #args do
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
-- the job has ended, and room was made when it came.
function Tensor.keep(tenant, text)
    for id, bytes, form in gmatch(text, '\t(t%x+) (%d+) ([^\t]+)') do
        add(tenant, L.tensor_life_s, id, bytes, form)
    end
end

-- Whether there is what the texts of a submission name, "BLOB,BLOB...", for that tenant.
function Tensor.there(blobs, tenant, has_outputs)
    for id, kind in gmatch(blobs, '(%w+)%.(%a+)') do
        local is = kind == 'in' and owned(tenant, id) or kind == 'out' and has_outputs(id, tenant)
        if not is then return false end
    end
    return true
end

-- What is known of a blob that is a tensor's.
local function facts_of_blob(blob)
    local id = match(blob, '^(t%x+)%.in$')
    return id and facts_of(id), id
end

-- One more pending job, or batch entry, of the tenant refers to these.
function Tensor.hold(blobs, tenant)
    for blob in gmatch(blobs, '[^,]+') do
        if refer(blob, 1) == 1 then
            local facts, id = facts_of_blob(blob)
            if facts then unindex(id, facts) end
            if not id then Kept.hold_out(blob, tenant) end
        end
    end
end

-- Changes how many pending jobs refer to the blob; what nobody does any more is not kept for them.
local function refer_held(blob, by)
    if refer(blob, by) then return end
    Tensor.let_go(blob)
    local facts, id = facts_of_blob(blob)
    if facts then index(id, facts) end
end

-- A batch entry was opened: each of its jobs holds what it held, so there are so many more; one less where its
-- record frames are damaged, all of them.
function Tensor.share_out(blobs, more)
    for blob in gmatch(blobs, '[^,]+') do refer_held(blob, more) end
end

-- Jobs have ended that held these, a text each.
function Tensor.release(texts)
    for _, blobs in ipairs(texts) do
        for blob in gmatch(blobs, '[^,]+') do refer_held(blob, -1) end
    end
end

-- Whether there is such a tensor, or a pending job refers to the blob.
function Tensor.referred(id, blob)
    return call('HEXISTS', K.tensors, id) == 1 or call('HEXISTS', K.refs, blob) == 1
end

-- Drops those whose time is up; how many blobs are free.
function Tensor.tick()
    local freed = 0
    local old = call('ZRANGE', K.tensor_ends, '-inf', floor(now / 1000000), 'BYSCORE', 'LIMIT', 0, 100)
    for _, id in ipairs(old) do freed = freed + drop(id, facts_of(id) or {bytes = 0, tenant = NOBODY}) end
    return freed
end

end

-- Webhooks: how many may be asked for, and the stream {q}:hooks of the ends that are to be told, each until it is
-- delivered or given up. `blasd notify` reads it (queue/webhooks.c). Read next: tensors.lua.

local Hook = {}
do

local ALL = '*' -- in the counts, where no lane and no tenant is called so

-- What a tenant has for one receiver.
local function lane_of(tenant, url) return tenant .. ' ' .. match(url, '^%w+://[^/?]*') end

local function count(tenant, url, by)
    for _, field in ipairs({lane_of(tenant, url), tenant, ALL}) do
        if call('HINCRBY', K.hook_counts, field, by) <= 0 then call('HDEL', K.hook_counts, field) end
    end
end

-- Whether there is room for one more: `most` in all, three quarters of them for one of several tenants, and a tenth
-- for one lane.
function Hook.fits(tenant, url, most)
    local counts = call('HMGET', K.hook_counts, lane_of(tenant, url), tenant, ALL)
    local limits = {max(floor(most / 10), 1), tenant == NOBODY and most or max(floor(most / 4 * 3), 1), most}
    for i, limit in ipairs(limits) do
        if tonumber(counts[i] or 0) >= limit then return false end
    end
    return true
end

function Hook.promise(tenant, url) count(tenant, url, 1) end

-- The job whose end is to be told there has ended, and its one record frame says how.
function Hook.ended(id, tenant, url, record_frame)
    call('XADD', K.hooks, '*', 'tenant', tenant, 'url', url, 'id', id, 'record', Record.frame(record_frame, RECORD_FRAME_HEAD + 1))
end

-- Takes, renews or, with 0 ms, gives back the lease by which one process delivers.
function Hook.lease(keys, args)
    start(keys, args)
    local name, ms = args[2], count_of(args[3])
    if not ms then return redis.error_reply('ERR webhook_lease: no number') end
    local its, till = match(call('HGET', K.state, 'notifier') or '', '^(%S+) (%d+)$')
    if not its or tonumber(till) <= now then its = nil end
    if its and its ~= name then return {0, now} end
    call('HSET', K.state, 'notifier', name .. ' ' .. whole(now + ms * 1000))
    return {ms == 0 and 0 or its and 1 or 2, now}
end

local OUTCOMES = {delivered = true, failed = true, given_up = true}

function Hook.done(keys, args)
    start(keys, args)
    local name, outcome = args[2] or '', args[3]
    if not (match(name, '^%d+%-%d+$') and OUTCOMES[outcome]) then return redis.error_reply('ERR webhook_done: no outcome') end
    local entry = call('XRANGE', K.hooks, name, name)[1]
    if not entry then return 0 end
    State.count('webhooks ' .. outcome, 1)
    if outcome ~= 'failed' then
        call('XDEL', K.hooks, name)
        count(entry[2][2], entry[2][4], -1)
    end
    return 0
end

end

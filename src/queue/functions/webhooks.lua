-- Webhooks: which pending jobs' ends are to be told to a URL, and those of jobs that have ended until
-- they are delivered: main/cmd_notify.c does that, by way of queue/webhooks.c. Read next: endings.lua.
--
-- What a tenant has told one receiver is a lane of its own: while a lane does not get on, the others
-- do. It is given away as a whole, to one at a time.

local Hook = {}
do

local RETRY_LEAST, RETRY_MOST = 1e6, 3600e6 -- us between two tries of a webhook
local PAUSE_LEAST, PAUSE_MOST = 1e6, 60e6   -- of a lane that does not get on

local function lane_of(tenant, url) return tenant .. ' ' .. match(url, '^%w+://[^/?]*') end

-- Of the lane, and of all of its tenant.
local function count(lane, by)
    for _, of in ipairs({lane, match(lane, '^%S+')}) do
        if call('HINCRBY', K.hook_counts, of, by) <= 0 then call('HDEL', K.hook_counts, of) end
    end
end

local function counted_of(of) return tonumber(call('HGET', K.hook_counts, of) or 0) end

-- Until when a lane is not to be given away, and since when it does not get on; 0: it may, it does.
local function hold_of(lane)
    local till, since = match(call('HGET', K.hook_holds, lane) or '', '^(%d+) (%d+)$')
    return tonumber(till or 0), tonumber(since or 0)
end

-- Sets both, and with them when the lane is next.
local function hold(lane, till, since)
    local first = call('ZRANGE', K.hook_lane_of .. lane, 0, 0, 'WITHSCORES')[2]
    if not first then
        call('ZREM', K.hook_due, lane)
        call('HDEL', K.hook_holds, lane)
        return
    end
    call('ZADD', K.hook_due, whole(max(tonumber(first), till)), lane)
    if till > 0 then
        call('HSET', K.hook_holds, lane, whole(till) .. ' ' .. whole(since))
    else
        call('HDEL', K.hook_holds, lane)
    end
end

-- Whether one more may be promised: `most` in all, three quarters of them to one of several tenants,
-- and a tenth for one lane.
function Hook.fits(tenant, url, most)
    if call('HLEN', K.notify) + call('HLEN', K.hooks) >= most then return false end
    if tenant ~= NOBODY and counted_of(tenant) >= max(most / 4 * 3, 1) then return false end
    return counted_of(lane_of(tenant, url)) < max(most / 10, 1)
end

function Hook.promise(id, tenant, url)
    call('HSET', K.notify, id, url)
    count(lane_of(tenant, url), 1)
end

function Hook.any() return call('EXISTS', K.notify) == 1 end

-- The job has ended, and its one piece says how.
function Hook.ended(id, tenant, piece)
    local url = call('HGET', K.notify, id)
    if not url then return end
    local lane = lane_of(tenant, url)
    call('HDEL', K.notify, id)
    call('HSET', K.hooks, id, url .. '\n' .. Record.frame(piece, PIECE_HEAD + 1))
    call('ZADD', K.hook_lane_of .. lane, now_text, id)
    call('ZADD', K.hook_due, 'LT', whole(max(now, (hold_of(lane)))), lane)
end

local function drop(lane, id, as)
    call('HDEL', K.hooks, id)
    call('ZREM', K.hook_lane_of .. lane, id)
    call('HINCRBY', K.totals, 'webhooks ' .. as, 1)
    count(lane, -1)
end

function Hook.take(keys, args)
    start(keys, args)
    local most, each, lease = count_of(args[2]), count_of(args[3]), count_of(args[4])
    local reply = {}
    if not (most and each and lease) then return redis.error_reply('ERR webhook_take: no number') end
    for _, lane in ipairs(call('ZRANGE', K.hook_due, '-inf', now_text, 'BYSCORE', 'LIMIT', 0, most)) do
        local _, since = hold_of(lane)
        local ids = call('ZRANGE', K.hook_lane_of .. lane, '-inf', now_text, 'BYSCORE', 'LIMIT', 0,
                         since > 0 and 1 or each)
        local round = {lane}
        for i, hook in ipairs(get_many(K.hooks, ids)) do
            if hook then
                round[#round + 1] = ids[i]
                round[#round + 1] = hook
            else -- nothing here leaves it so
                call('ZREM', K.hook_lane_of .. lane, ids[i])
            end
        end
        hold(lane, #round > 1 and now + lease or 0, since)
        if #round > 1 then reply[#reply + 1] = round end
    end
    return reply
end

-- One that has failed waits as long again as it has been tried for.
local function failed(lane, id, hook, outcome, life)
    local age = now - Record.finished(hook, find(hook, '\n', 1, true) + 1)
    if outcome == 'never' or age >= life then
        drop(lane, id, 'given_up')
        return 1
    end
    local later = max(min(max(age, RETRY_LEAST), RETRY_MOST), tonumber(outcome) * 1e6)
    call('HINCRBY', K.totals, 'webhooks failed', 1)
    call('ZADD', K.hook_lane_of .. lane, whole(now + later), id)
    return 0
end

local function is_outcome(text) return text == 'delivered' or text == 'never' or count_of(text) end

function Hook.done(keys, args)
    start(keys, args)
    local lane, life, good, asked, given_up = args[2], count_of(args[3]), false, 0, 0
    local well = life and #args % 2 == 1
    for i = 5, #args, 2 do well = well and is_outcome(args[i]) end
    if not well then return redis.error_reply('ERR webhook_done: no outcome') end
    life = life * 1e6
    for i = 4, #args - 1, 2 do
        local id, outcome = args[i], args[i + 1]
        local hook = call('HGET', K.hooks, id)
        if hook and outcome == 'delivered' then
            drop(lane, id, outcome)
        elseif hook then
            given_up = given_up + failed(lane, id, hook, outcome, life)
        end
        good = good or not tonumber(outcome)
        asked = max(asked, tonumber(outcome) or 0)
    end
    if good or #args == 3 then
        hold(lane, 0, 0)
    else
        local _, since = hold_of(lane)
        if since == 0 then since = now end
        hold(lane, now + max(min(max(now - since, PAUSE_LEAST), PAUSE_MOST), asked * 1e6), since)
    end
    return given_up
end

end

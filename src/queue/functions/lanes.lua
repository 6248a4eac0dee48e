-- What is to go to others over HTTP, webhooks (webhooks.lua): main/cmd_notify.c sends it, by way of queue/webhooks.c. Read next: webhooks.lua.
--
-- What a tenant has for one receiver is a lane of its own: while a lane does not get on, the others
-- do. It is given away as a whole, to one at a time.

local Lane = {}
do

local RETRY_LEAST, RETRY_MOST = 1e6, 3600e6 -- us between two tries of one
local PAUSE_LEAST, PAUSE_MOST = 1e6, 60e6   -- of a lane that does not get on

-- A kind: `noun` begins the names of its keys, `all` is the one with what is to be sent, and `called`
-- what it is in totals. Beside that it has
--   text(name, tenant)                what is given away of one, nil where that is not there any more
--   finished(text)                    when its job has ended, in us
function Lane.kind(noun, all, called)
    return {called = called, due = noun .. '_due', lane_of = noun .. '_lane_of', holds = noun .. '_holds',
            counts = noun .. '_counts', all = all}
end

function Lane.of(tenant, url) return tenant .. ' ' .. match(url, '^%w+://[^/?]*') end

local function tenant_of(lane) return match(lane, '^%S*') end

local ALL = '*' -- beside the lanes in the counts, none of which is called so

local function counted(kind, lane) return tonumber(call('HGET', K[kind.counts], lane) or 0) end

local function count(kind, lane, by)
    for _, of in ipairs({lane, tenant_of(lane), ALL}) do
        if call('HINCRBY', K[kind.counts], of, by) <= 0 then call('HDEL', K[kind.counts], of) end
    end
end

-- Whether there is room for what is to go to these URLs: for `most` in all, three quarters of them of
-- one of several tenants, and a tenth in one lane.
function Lane.fits(kind, tenant, urls, most)
    local own, share = {}, tenant == NOBODY and most or max(floor(most / 4 * 3), 1)
    if counted(kind, tenant) + #urls > share then return false end
    for _, url in ipairs(urls) do
        local lane = Lane.of(tenant, url)
        own[lane] = (own[lane] or counted(kind, lane)) + 1
        if own[lane] > max(floor(most / 10), 1) then return false end
    end
    return counted(kind, ALL) + #urls <= most
end

function Lane.promise(kind, tenant, url) count(kind, Lane.of(tenant, url), 1) end
function Lane.forget(kind, tenant, url) count(kind, Lane.of(tenant, url), -1) end

-- Until when a lane is not to be given away, and since when it does not get on; 0: it may, it does.
local function hold_of(kind, lane)
    local till, since = match(call('HGET', K[kind.holds], lane) or '', '^(%d+) (%d+)$')
    return tonumber(till or 0), tonumber(since or 0)
end

-- Sets both, and with them when the lane is next.
local function hold(kind, lane, till, since)
    local first = call('ZRANGE', K[kind.lane_of] .. lane, 0, 0, 'WITHSCORES')[2]
    if not first then
        call('ZREM', K[kind.due], lane)
        call('HDEL', K[kind.holds], lane)
        return
    end
    call('ZADD', K[kind.due], whole(max(tonumber(first), till)), lane)
    if till > 0 then
        call('HSET', K[kind.holds], lane, whole(till) .. ' ' .. whole(since))
    else
        call('HDEL', K[kind.holds], lane)
    end
end

-- One more is to be sent, from now on.
function Lane.add(kind, tenant, url, name, text)
    local lane = Lane.of(tenant, url)
    call('HSET', K[kind.all], name, text)
    call('ZADD', K[kind.lane_of] .. lane, now_text, name)
    call('ZADD', K[kind.due], 'LT', whole(max(now, (hold_of(kind, lane)))), lane)
end

local function tell(kind, outcome) State.count(kind.called .. ' ' .. outcome, 1) end

local function drop(kind, lane, name, outcome)
    call('HDEL', K[kind.all], name)
    call('ZREM', K[kind.lane_of] .. lane, name)
    count(kind, lane, -1)
    tell(kind, outcome)
end

local function wrong(kind, what)
    return redis.error_reply('ERR ' .. sub(kind.called, 1, -2) .. '_' .. what)
end

function Lane.take(kind, keys, args)
    start(keys, args)
    local most, each, lease = count_of(args[2]), count_of(args[3]), count_of(args[4])
    local reply = {}
    if not (most and each and lease) then return wrong(kind, 'take: no number') end
    for _, lane in ipairs(call('ZRANGE', K[kind.due], '-inf', now_text, 'BYSCORE', 'LIMIT', 0, most)) do
        local _, since = hold_of(kind, lane)
        local round = {lane}
        for _, name in ipairs(call('ZRANGE', K[kind.lane_of] .. lane, '-inf', now_text, 'BYSCORE',
                                   'LIMIT', 0, since > 0 and 1 or each)) do
            local text = kind.text(name, tenant_of(lane))
            if text then
                round[#round + 1], round[#round + 2] = name, text
            else
                drop(kind, lane, name, 'given_up')
            end
        end
        hold(kind, lane, #round > 1 and now + lease or 0, since)
        if #round > 1 then reply[#reply + 1] = round end
    end
    return reply
end

-- One that has failed waits as long again as it has been tried for.
local function failed(kind, lane, name, outcome, life)
    local text = kind.text(name, tenant_of(lane))
    local age = text and now - kind.finished(text)
    if outcome == 'never' or not age or age >= life then
        drop(kind, lane, name, 'given_up')
        return 1
    end
    local later = max(min(max(age, RETRY_LEAST), RETRY_MOST), tonumber(outcome) * 1e6)
    tell(kind, 'failed')
    call('ZADD', K[kind.lane_of] .. lane, whole(now + later), name)
    return 0
end

local function is_outcome(text) return text == 'delivered' or text == 'never' or count_of(text) end

function Lane.done(kind, keys, args)
    start(keys, args)
    local lane, life, good, asked, given_up = args[2], count_of(args[3]), false, 0, 0
    local well = life and #args % 2 == 1
    for i = 5, #args, 2 do well = well and is_outcome(args[i]) end
    if not well then return wrong(kind, 'done: no outcome') end
    life = life * 1e6
    for i = 4, #args - 1, 2 do
        local name, outcome = args[i], args[i + 1]
        local there = call('HEXISTS', K[kind.all], name) == 1
        if there and outcome == 'delivered' then
            drop(kind, lane, name, outcome)
        elseif there then
            given_up = given_up + failed(kind, lane, name, outcome, life)
        end
        good = good or not tonumber(outcome)
        asked = max(asked, tonumber(outcome) or 0)
    end
    if good or #args == 3 then
        hold(kind, lane, 0, 0)
    else
        local _, since = hold_of(kind, lane)
        if since == 0 then since = now end
        hold(kind, lane, now + max(min(max(now - since, PAUSE_LEAST), PAUSE_MOST), asked * 1e6), since)
    end
    return given_up
end

end

-- Redis' clock goes back, as where NTP sets it, or a replica that is behind becomes the master: what is due at
-- a time, or waits since one, would wait as long again as that was. All such times go back with it, by what has
-- been lost since the last tick. Read next: recovery.lua.

local mind_clock
do

local SEEN_US = 1000000 -- how long it is before the time is noted anew

-- Keys that expire do so by the same clock, and live for so long at the most.
local function expire_within(key, ms) call('PEXPIRE', key, ms, 'LT') end

local function all_earlier(by)
    Lane.earlier(by)
    Lane.scores_earlier(K.deadlines, by)
    Lane.scores_earlier(K.recs, floor(by / 1000000))
    Lane.scores_earlier(K.tensor_ends, floor(by / 1000000))
    local shared = call('HGET', K.count, 'shared')
    if shared then call('HSET', K.count, 'shared', whole(max(tonumber(shared) - by, 0))) end
    for c = 2, 3 do
        local key = K.alone_of .. CLASSES[c]
        local since = call('GET', key)
        if since then call('SET', key, whole(max(tonumber(since) - by, 0)), 'EX', 60) end
    end
    for _, worker in ipairs(call('HKEYS', K.workers)) do expire_within(K.lease_of .. worker, L.lease_ms) end
    for _, key in ipairs({K.sweeping, K.sweeping .. ':at_work'}) do expire_within(key, 10000) end
end

mind_clock = function()
    local last = tonumber(call('GET', K.clock) or 0)
    if now < last then all_earlier(last - now) end
    if now < last or now - last > SEEN_US then call('SET', K.clock, now_text) end
end

end

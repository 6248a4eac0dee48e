-- What ended jobs used, for who bills it: queue/usage_stream.c takes it from {q}:usage and writes the sums.
-- Read next: completions.lua.

local Meter = {}

-- Where it is wanted: a table for Meter.note, else nil.
function Meter.new() return call('EXISTS', K.metered) == 1 and {} or nil end

local AT_ONCE = 2000 -- words of a command
local MOST = '100000' -- entries of the stream, about: where nobody takes them the oldest go

-- Notes the records of `jobs` jobs. They are not joined: a text that is made here is hashed whole.
function Meter.note(used, tenant, jobs, record_frames)
    local words = used[tenant] or {K.usage, 'MAXLEN', '~', MOST, '*', 'tenant', tenant}
    local n = #words
    words[n + 1], words[n + 2] = 'records', Record.bare(record_frames, jobs)
    if n > AT_ONCE then
        call('XADD', unpack(words))
        words = nil
    end
    used[tenant] = words
end

function Meter.write(used)
    for _, words in pairs(used) do call('XADD', unpack(words)) end
end

-- The sums of a tenant's days, and of all tenants' where it is '': JSON text.
local DAYS, DAYS_OF_ALL = 92, 8
local function usage(keys, args)
    start(keys, args)
    local tenants, rows = {args[2]}, {}
    local from, to, days = tonumber(args[3]), tonumber(args[4]), DAYS
    if args[2] == '' then tenants, days = call('SMEMBERS', K.usage_tenants), DAYS_OF_ALL end
    for _, tenant in ipairs(tenants) do
        for day = max(from, to - days + 1), to do
            local got, of = call('HGETALL', K.usage_of .. tenant .. ':' .. whole(day)), {}
            for i = 1, #got, 2 do
                local hour, op, what = match(got[i], '^(%d+) (%S+) (%S+)$')
                if hour then
                    local row = of[hour .. ' ' .. op]
                    if not row then
                        row = {tenant = tenant, hour = tonumber(hour), op = op}
                        of[hour .. ' ' .. op], rows[#rows + 1] = row, row
                    end
                    row[what] = tonumber(got[i + 1])
                end
            end
        end
    end
    table.sort(rows, function(a, b)
        if a.tenant ~= b.tenant then return a.tenant < b.tenant end
        if a.hour ~= b.hour then return a.hour < b.hour end
        return a.op < b.op
    end)
    return cjson.encode({rows = rows})
end

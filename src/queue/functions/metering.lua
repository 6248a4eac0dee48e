-- What ended jobs used, for who bills it: queue/usage_stream.c takes it from {q}:usage and writes the sums.
-- Read next: completions.lua.

local Meter = {}

-- Where it is wanted: a table for Meter.note, else nil.
function Meter.new() return call('EXISTS', K.metered) == 1 and {} or nil end

-- Notes the record of each job in `record_frames`, without what lies in it of outputs.
function Meter.note(used, tenant, record_frames)
    local records = used[tenant] or {}
    used[tenant] = records
    each_record_frame(record_frames, function(_, from)
        records[#records + 1] = Record.frame(record_frames, from)
    end)
end

function Meter.write(used)
    for tenant, records in pairs(used) do
        call('XADD', K.usage, '*', 'tenant', tenant, 'records', concat(records))
    end
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

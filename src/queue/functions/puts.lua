-- Puts: outputs that go to URLs once their job has succeeded. A put holds nothing itself: the job's
-- record does, as long as it is kept, and says what has become of each. Read next: tensors.lua.

local Put = {} -- recorded(id, tenant), which finds records, is set by front_ends.lua
do

local KIND = Lane.kind('put', 'puts', 'puts')
local PENDING, DONE, GIVEN_UP = 1, 2, 3

-- A put's name: its job's, and the position of the output.
local function parts_of(name) return sub(name, 1, ID), tonumber(sub(name, ID + 2)) end

-- The URL, and the record with what lies in it of outputs.
function KIND.text(name, tenant)
    local id = parts_of(name)
    local url, record = call('HGET', K.puts, name), Put.recorded(id, tenant)
    return url and record and url .. '\n' .. record or nil
end

function KIND.finished(text) return Record.finished(text, find(text, '\n', 1, true) + 1) end

function KIND.note(name, tenant, outcome, why)
    local id, at = parts_of(name)
    local state = outcome == 'delivered' and DONE or outcome == 'failed' and PENDING or GIVEN_UP
    local record, record_frame, bucket = Put.recorded(id, tenant)
    if not record then return end
    call('HSET', K.rec_of .. bucket, id, Record.put_is(record_frame, at, state, 1, tonumber(why) or 0))
end

-- What the OPTIONS of a job ask for, " p=AT:URL" each: "AT URL" each, and the URLs; nil where it is
-- nothing, false where it is malformed.
function Put.asked(options)
    local puts = {urls = {}}
    for word in gmatch(options, ' p=(%S*)') do
        local at, url = match(word, '^(%d%d?):(%w+://[^/?].*)$')
        if not at or tonumber(at) >= Record.PUTS_MOST then return false end
        puts[#puts + 1], puts.urls[#puts.urls + 1] = at .. ' ' .. url, url
    end
    return #puts > 0 and puts or nil
end

function Put.fits(tenant, puts, most) return Lane.fits(KIND, tenant, puts.urls, most) end

function Put.promise(id, tenant, puts)
    call('HSET', K.putting, id, concat(puts, '\n'))
    for _, url in ipairs(puts.urls) do Lane.promise(KIND, tenant, url) end
end

function Put.is_promised(id) return call('HEXISTS', K.putting, id) == 1 end

-- The job has ended: its one record frame, as it is to be kept. Of one that succeeded it is whole.
function Put.ended(id, tenant, record_frame)
    local asked = call('HGET', K.putting, id)
    if not asked then return record_frame end
    local good = Record.state(record_frame, RECORD_FRAME_HEAD + 1) == 'succeeded'
    call('HDEL', K.putting, id)
    if good then record_frame = Record.with_puts(Record.not_later(record_frame)) end
    for at, url in gmatch(asked, '(%d+) (%S+)') do
        if good then
            record_frame = Record.put_is(record_frame, tonumber(at), PENDING, 0, 0)
            Lane.add(KIND, tenant, url, id .. ':' .. at, url)
        else
            Lane.forget(KIND, tenant, url)
        end
    end
    return record_frame
end

function Put.take(keys, args) return Lane.take(KIND, keys, args) end
function Put.keep(keys, args) return Lane.keep(KIND, keys, args) end
function Put.done(keys, args) return Lane.done(KIND, keys, args) end

end

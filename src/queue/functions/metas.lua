-- What the queue notes of a pending job, or batch entry, in one line: its meta. Read next: running.lua.

local LEAST_US = 32 -- what is predicted for a job where its meta does not say: less than 64

local last_meta, last_job -- of many metas in a row all but the first are the same text

-- What it refers to, what tensors it will make, and where its end is told: "[BLOB,BLOB...][ BYTES TENSORS][ URL]".
local function read_uses(job, text)
    local blobs, rest = match(text, '^(%S*)(.*)$')
    local bytes, tensors = match(rest, '^ (%d+) (%d+)')
    if blobs ~= '' then job.holds = blobs end
    if bytes then job.makes = {tonumber(bytes), tonumber(tensors)} end
    job.url = match(rest, ' (%a%w*://%S+)$')
end

-- What a meta says, not to be changed. One that nothing here has written must not stop the jobs
-- beside it: its own job can still be read, ended and cancelled.
local function parse(meta)
    if meta == last_meta then return last_job end
    local si, us, cost, flags, deadline, seg, time, weight, result, attempts, jobs, channels, op, labels, tenant, uses, key =
        match(meta, '^([1-9a-r]) (%d+) (%d+) ([0-3]) (%d+) ?(%x*) ?p?(%d*) ?w?(%d*) ?r?(%d*) ?n?(%d*) ?x?(%d*)\t([^\t]*)\t' ..
                    '([^\t ]*) ?([^\t]*)\t([^\t]*)\t?([^\t]*)\t?(.*)$')
    if not si then
        return {si = '2', cost = 0, result = 0, jobs = 1, deadline = 0, seg = '', channels = '', op = 'unknown',
                labels = '', tenant = 'anonymous', line = '2 anonymous', time = LEAST_US, key = '',
                us = now_text, claim = ' ' .. now_text .. ' 0 0'}
    end
    local bits = tonumber(flags)
    last_meta = meta
    last_job = {si = si, cost = tonumber(cost), jobs = tonumber(jobs) or 1,
                deadline = tonumber(deadline), seg = seg, channels = channels, op = op, result = tonumber(result) or 0,
                labels = labels, tenant = tenant, line = si .. ' ' .. tenant, time = tonumber(time) or LEAST_US,
                key = key, us = us,
                claim = ' ' .. us .. ' ' .. cost .. (bits % 2 == 1 and ' 1' or ' 0')} -- behind the name, as in a claim
    if weight ~= '' then last_job.metered = tonumber(weight) end -- else nil, as sixteen fields take half the memory of seventeen
    if bits >= 2 then last_job.promised = true end
    if uses ~= '' then read_uses(last_job, uses) end
    if attempts ~= '' then
        last_job.attempts, last_job.claim = tonumber(attempts), last_job.claim .. ' ' .. attempts
    end
    if jobs ~= '' then last_job.claim = last_job.claim .. ' 0 ' .. jobs end
    return last_job
end

-- What each of its jobs counts for in its tenant's share.
local function work_of(job) return max(1, job.time / (job.metered or 1)) end

-- What jobs have in common that are alike but for their ids and times: those of one submission as a
-- rule, and those of the next. Not to be changed; `cost` is nil where `cost_text` is malformed.
local last_like = {}
local function alike(si, cost_text, note)
    local like = last_like
    if si == like.asked and cost_text == like.cost_text and note == like.note then return like end
    local cost, packed, result = match(cost_text, '^(%d+) ?(%d*) ?r?(%d*)$')
    local seg, channels, op, labels, tenant, rest =
        match(note, '^ ?(%x*)\t([^\t]*)\t([^\t ]*)( ?[^\t]*)\t([%w._-]+)(.*)$')
    local time, limits = match(rest or '', '^\t(%d+)(.*)$')
    local weight, jobs, bytes, stored = match(limits or '', '^ (%d+) (%d+) (%d+) (%d+)$')
    local good = K.wait[si] and (rest == '' or count_of(time) and (limits == '' or count_of(weight))) and
                 (result == '' or count_of(result))
    local asked, us = si, good and tonumber(time or 0) or 0
    if us >= BRIEF_US and SI.quick[si] == si then
        si = SI[tonumber(si) + (us >= LONG_US and 18 or 9)]
    elseif us == 0 then
        time = nil
    end
    last_like = {asked = asked, si = si, cost_text = cost_text, note = note, cost = good and count_of(cost),
                 result = count_of(result) or 0, packed = count_of(packed), seg = seg, channels = channels, op = op,
                 counted = op and op .. ' submitted',
                 labels = labels, tenant = tenant, line = good and si .. ' ' .. tenant, time = tonumber(time), metered = weight,
                 jobs_most = tonumber(jobs), bytes_most = tonumber(bytes),
                 stored_most = tonumber(stored)}
    if last_like.cost then -- parts of their metas
        last_like.weight = ' ' .. whole(last_like.cost) .. ' '
        last_like.extra = (seg ~= '' and ' ' .. seg or '') .. (time and ' p' .. time or '') ..
                          (weight and ' w' .. weight or '') .. (last_like.result > 0 and ' r' .. result or '')
        last_like.tail = '\t' .. channels .. '\t' .. op .. labels .. '\t' .. tenant
    end
    return last_like
end

-- The meta of such jobs, submitted now, which is read as a rule before any other.
local function meta_of(like, blob, deadline, packed, key, uses)
    local begin = ' ' .. now_text .. like.weight
    local head = begin .. blob
    last_meta = like.si .. head .. ' ' .. deadline .. like.extra ..
                (packed and ' x' .. whole(packed) or '') .. like.tail ..
                ((key or uses) and '\t' .. (uses or '') .. '\t' .. (key or '') or '')
    last_job = {si = like.si, cost = like.cost, result = like.result, jobs = packed or 1,
                deadline = deadline == '0' and 0 or tonumber(deadline),
                seg = like.seg, channels = like.channels, op = like.op,
                labels = sub(like.labels, 2), tenant = like.tenant,
                line = like.line, time = like.time or LEAST_US,
                key = key or '', us = now_text, claim = packed and head .. ' 0 ' .. whole(packed) or head}
    if like.metered then last_job.metered = tonumber(like.metered) end
    if uses then read_uses(last_job, uses) end
    return last_meta
end

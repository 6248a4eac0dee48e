-- Records of jobs: what is read of them here, and those that are written here. Read next: events.lua.
--
-- A record begins with a head of 256 bytes in which every number has its place: wire/frame_record.c
-- has the struct, and asserts these places. Behind it are texts, each after a byte of its length: the
-- labels, where there are any; the name of the error's code, its field, its detail, the device's id,
-- ...; then zeros up to a multiple of 64, then the outputs that lie in it.

local Record = {} -- Lua lets a file have 200 local names, so what others need of this is in here
do

local FORM = '<c4I2I2I4BBBB' ..        -- magic, schema, 0, bytes; state, priority, class, place
             'i8i8i8di8i8i8i8i8i8i8' .. -- created, started, finished, progress; the seven times
             'I4I4dI8dI8I8I4BBBB' ..    -- batch, attempts, ...; warnings, outputs, whether labels, 0
             'c16c48c32'                -- segment, id, operation
local SCHEMA, HEAD, STATE_AT, CREATED_AT, LABELS_AT, OP_AT = 2, 256, 12, 16, 158, 224
local FINISHED_AT, TIMES_AT, BATCH_AT = 32, 72, 104 -- times: upload, compute, download
local FLOPS_AT, FLOPS_MOST = 112, 1e24 -- bytes and joules follow
local PLACE_AT, IN_SEGMENT, BYTES_AT, SEGMENT_AT = 15, 2, 136, 160
Record.STATES = {queued = 0, running = 1, succeeded = 2, failed = 3, cancelled = 4, expired = 5}
-- What a worker may say that one job's outputs take: so sums of very many remain what Redis, and a double, hold.
Record.BYTES_MOST = 1099511627776
local ENDED = {[2] = 'succeeded', [3] = 'failed', [4] = 'cancelled', [5] = 'expired'}

function Record.ended(state) return (Record.STATES[state] or 0) > 1 end

-- Whether the text holds a record at `at`. One that does not must not stop the jobs beside it.
local function is_record(text, at)
    return sub(text, at, at + 3) == 'BLRF' and #text >= at + HEAD
end

-- The state in which the record at `at` says that its job ended, or nil.
function Record.state(text, at)
    if sub(text, at, at + 3) ~= 'BLRF' or #text < at + HEAD then return nil end -- is_record: this is asked of each
    return ENDED[byte(text, at + STATE_AT)]
end

local last_op, last_bytes -- as a rule that of the next record, too
function Record.op(text, at)
    if not is_record(text, at) then return nil end
    local bytes = sub(text, at + OP_AT, at + HEAD - 1)
    if bytes ~= last_bytes then last_op, last_bytes = match(bytes, '^%Z*'), bytes end
    return last_op
end

-- The labels of the job, '' where it has none.
function Record.labels(text, at)
    if not is_record(text, at) or byte(text, at + LABELS_AT) ~= 1 then return '' end
    return sub(text, at + HEAD + 1, at + HEAD + (byte(text, at + HEAD) or 0))
end

-- When its job was made, in us; where it does not say, when its id was.
function Record.made(text, at, id)
    if is_record(text, at) then return max(0, min(struct.unpack('<i8', text, at + CREATED_AT), 9e15)) end
    return tonumber(sub(id, 2, 9), 16) * 1000000
end

-- When it ended, in us.
function Record.finished(text, at)
    return is_record(text, at) and (struct.unpack('<i8', text, at + FINISHED_AT)) or 0
end

-- How many us of a device it used, its part of the batch it was in; nil where it does not say.
function Record.device_us(text, at)
    if not is_record(text, at) then return nil end
    local up, compute, down = struct.unpack('<i8i8i8', text, at + TIMES_AT)
    return (max(up, 0) + max(compute, 0) + max(down, 0)) / max(struct.unpack('<I4', text, at + BATCH_AT), 1)
end

-- What a worker may say that one job used, of anything, so that sums remain what a double holds; NaN counts for
-- nothing.
local function told(value) return value > 0 and min(value, Record.BYTES_MOST) or 0 end

-- What the job of the record at `at` used of which device, its part of a batch, and when it ended, in us.
function Record.used(text, at)
    if not is_record(text, at) then
        return {device = '', device_us = 0, joules = 0, flops = 0, bytes = 0, finished = now}
    end
    local from, batch = at + HEAD + #Record.labels(text, at), max(struct.unpack('<I4', text, at + BATCH_AT), 1)
    if from > at + HEAD then from = from + 1 end
    for _ = 1, 3 do from = from + 1 + (byte(text, from) or 0) end -- code, field, detail
    local flops, bytes, joules = struct.unpack('<dI8d', text, at + FLOPS_AT)
    return {device = match(sub(text, from + 1, from + (byte(text, from) or 0)), '^%l+:%d+$') or '',
            device_us = told(Record.device_us(text, at)), joules = told(joules / batch), bytes = told(bytes),
            flops = flops > 0 and min(flops, FLOPS_MOST) or 0,
            finished = max(min(Record.finished(text, at), now), 0)}
end

-- In which segment the outputs of the record at `at` lie, '' where in none, and how many bytes of it
-- they are; nil where that is no record.
function Record.slice(text, at)
    if not is_record(text, at) then return nil end
    if byte(text, at + PLACE_AT) ~= IN_SEGMENT then return '', 0 end
    return match(sub(text, at + SEGMENT_AT, at + SEGMENT_AT + 15), '^%x*'),
           min(struct.unpack('<I8', text, at + BYTES_AT), Record.BYTES_MOST)
end

-- The name of the error in it.
function Record.error(text, at)
    if not is_record(text, at) then return 'internal_error' end
    local labels = #Record.labels(text, at)
    local from = at + HEAD + (labels > 0 and labels + 1 or 0)
    return match(sub(text, from + 1, from + (byte(text, from) or 0)), '^[%l_]+$') or 'internal_error'
end

-- The record at `at` alone, without outputs that lie behind it; '' where there is none.
function Record.frame(text, at)
    if not is_record(text, at) then return '' end
    return sub(text, at, at + struct.unpack('<I4', text, at + 8) - 1)
end

-- The record frame of that job.
function Record.framed(id, record) return struct.pack('<I4', #record) .. id .. record end

local AS_IS = 1024 -- bytes of a record that is told as it stands: a longer one without its tensors

-- The record frames of `jobs` jobs without the tensors that lie in them, where these are much; where
-- they are is then said as of a blob's.
function Record.bare(record_frames, jobs)
    if #record_frames <= AS_IS * jobs then return record_frames end
    local parts = {}
    each_record_frame(record_frames, function(id, from, to)
        if to - from < AS_IS or not is_record(record_frames, from) then
            parts[#parts + 1] = sub(record_frames, from - RECORD_FRAME_HEAD, to)
        else
            local last = min(from + struct.unpack('<I4', record_frames, from + 8) - 1, to)
            parts[#parts + 1] = Record.framed(id, sub(record_frames, from, from + PLACE_AT - 1) .. '\1' ..
                                                  sub(record_frames, from + PLACE_AT + 1, last))
        end
    end)
    return concat(parts)
end

function Record.zeros(n) return string.rep('\0', n) end

function Record.padded(text, size) return sub(text, 1, size) .. Record.zeros(size - #text) end
function Record.text(text)
    text = sub(text, 1, 255)
    return string.char(#text) .. text
end

-- Why a job ended that no worker ended: a sentence, and the field that it is about.
local function explain(code, began, attempts, total)
    if code == 'cancelled' then
        return 'the job was cancelled ' .. (began and 'while it ran' or 'before it began'), ''
    elseif code == 'deadline_exceeded' then
        return format('the deadline passed %s, %.3f s after it was submitted',
                      began and 'while the job ran' or 'while the job still waited',
                      total / 1000000), 'deadline_ms'
    elseif code == 'poisoned' then
        return format('%d worker%s ended while running this job, so it was given up', attempts,
                      attempts == 1 and '' or 's'), ''
    end
    return '', ''
end

-- What the frame of a job at `at` says of its trace: id 16, span 8, sampled 1, where wire/frame_job.c
-- puts them; nil where it says nothing, or is none.
local JOB_HEAD, TRACED, TRACE_AT, TRACE = 'BLJF\2\0', 128, 48, 25
function Record.trace(frame, at)
    if sub(frame, at, at + 5) ~= JOB_HEAD or (byte(frame, at + 12) or 0) < TRACED then return nil end
    local trace = sub(frame, at + TRACE_AT, at + TRACE_AT + TRACE - 1)
    return #trace == TRACE and trace or nil
end

-- The same of the pending job that is called so, also where it lies in a batch entry: the frames of
-- one are read once a call for all jobs that are asked for.
function Record.trace_of(id, job)
    if job.jobs == 1 then return Record.trace(frame_of(id), 1) end
    local name = sub(id, 1, BATCH_ENTRY)
    local last = Record.last_read
    if not last or last.now ~= now or last.name ~= name then
        last = {now = now, name = name, frames = frame_of(name)}
        Record.last_read = last
    end
    local at = find_record_frame(last.frames, id)
    return at and Record.trace(last.frames, at + RECORD_FRAME_HEAD)
end

-- What a worker has reported of a job: its progress, and microseconds to its end where that is known.
function Record.report(worker, id)
    local progress, ends = match(call('HGET', K.claims_of .. worker, '%' .. id) or '0', '^(%S+) ?(%d*)$')
    ends = tonumber(ends)
    return max(0, min(tonumber(progress) or 0, 1)), ends and max(ends - now, 0)
end

-- The bytes of a record. r: state (name), priority and class (by the order of the enums), id, op, labels,
-- created, started, finished (us, 0: not yet), progress, attempts, code or '', device or '', trace (nil:
-- none), remaining (us, of one that runs; nil: not known).
function Record.pack(r)
    local total = r.finished > 0 and max(r.finished - r.created, 0) or 0
    local queued = r.started > 0 and max(r.started - r.created, 0) or total
    local detail, field = explain(r.code, r.started > 0, r.attempts, total)
    local labels = r.labels ~= '' and Record.text(r.labels) or ''
    local texts = concat({labels, Record.text(r.code), Record.text(field), Record.text(detail),
                          Record.text(r.device), '\0\0', -- without name and method
                          r.trace and sub(r.trace, 1, 16) or '',
                          r.state == 'running' and struct.pack('<i8', r.remaining or -1) or ''})
    local fill = -(HEAD + #texts) % 64
    return struct.pack(FORM, 'BLRF', SCHEMA, 0, HEAD + #texts + fill,
                       Record.STATES[r.state], r.priority, r.class, 0,
                       r.created, r.started, r.finished, r.progress, 0, queued, 0, 0, 0, 0, total,
                       0, r.attempts, 0, 0, 0, 0, 0, 0, 0, 0, labels ~= '' and 1 or 0,
                       r.trace and 1 or 0,
                       Record.zeros(16), Record.padded(r.id, 48),
                       Record.padded(sub(r.op, 1, 31), 32)) ..
           texts .. Record.zeros(fill)
end

end

-- The record of a job that no worker has ended, queued or running where `state` is nil; and its trace.
local function summary(id, job, state, code, finder)
    local worker, started = finder(id)
    local attempts = job.attempts or 0
    local progress, remaining, device = 0, nil, ''
    local trace = Record.trace_of(id, job)
    started = count_of(started)
    if worker then
        if state ~= 'failed' then attempts = attempts + 1 end
        progress, remaining = Record.report(worker, id)
        device = device_of(worker)
    end
    local is = worker and 'running' or 'queued'
    return Record.pack({state = state or is, id = id, op = job.op,
                        labels = job.labels,
                        priority = SI.priority[job.si] - 1, class = SI.class[job.si] - 1,
                        created = tonumber(job.us), started = started or 0,
                        finished = state and now or 0, progress = progress,
                        remaining = remaining, trace = trace, attempts = attempts,
                        code = code or '', device = sub(device, 1, 15)}), trace
end

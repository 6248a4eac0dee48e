-- What becomes of jobs, told as it happens to those who look on: published on {q}:events while
-- somebody is subscribed there, who says so with each tick. Nothing depends on it. Read next:
-- ended.lua.
do

local A_SECOND = 2000 -- changes of a tenant that are told of, as many as a stream is sent (event_rate); of more, only how many they were

local events = {}
Record.events = events

local second, left = 0, {}       -- jobs of each tenant that may yet be told of in this second

local WATCHED_US = 5000000 -- for so long after a tick of who looks on

function events.watch() State.set('watched', now + WATCHED_US) end
function events.watched() return S.watched > now end

-- What stands first in the reply to a turn: a worker that is watched tells when jobs begin.
function events.clock() return events.watched() and now_text .. ' watched' or now_text end

-- A message is "TENANT SKIPPED WORKER\n" and record frames: SKIPPED jobs are not told of; WORKER: it has
-- begun these, as one batch, else "-".
local function tell(tenant, worker, jobs, record_frames)
    local this = floor(now / 1000000)
    if this ~= second then second, left = this, {} end
    local room = left[tenant] or A_SECOND
    local told, text = room >= jobs, ''
    left[tenant] = told and room - jobs or 0
    if told then told, text = pcall(record_frames) end -- the jobs themselves must go on, whatever happens here
    call('PUBLISH', K.events, tenant .. ' ' .. (told and '0' or whole(jobs)) .. ' ' .. worker .. '\n' ..
                              (told and text or ''))
end

-- The record frames of a job, or a batch entry, that has not ended: queued where `worker` is nil.
local function pending(name, job, frames, worker, started)
    local parts = {}
    local function finder() return worker, started end
    local function one(id) parts[#parts + 1] = Record.framed(id, summary(id, job, nil, nil, finder)) end
    if is_batch_entry(name) then each_record_frame(frames, one) else one(name) end
    return concat(parts)
end

function events.queued(name, meta, frames)
    if not events.watched() then return end
    local job = parse(meta)
    tell(job.tenant, '-', job.jobs, function() return pending(name, job, frames) end)
end

function events.given_back(name, meta)
    if not events.watched() then return end
    events.queued(name, meta, is_batch_entry(name) and frame_of(name) or '')
end

-- Those of the names that are pending run on that worker since `started`: as one batch that began
-- now, or `already`.
function events.running(worker, started, names, already)
    if not events.watched() then return end
    local found, metas = resolve(names)
    local jobs, tenant = 0, nil
    for _, meta in ipairs(metas) do
        jobs, tenant = jobs + parse(meta).jobs, parse(meta).tenant -- those of two share no batch
    end
    if jobs == 0 then return end
    tell(tenant, already and '-' or worker, jobs, function()
        local parts = {}
        for i, meta in ipairs(metas) do
            local frames = is_batch_entry(found[i]) and frame_of(found[i]) or ''
            parts[i] = pending(found[i], parse(meta), frames, worker, started)
        end
        return concat(parts)
    end)
end

-- To be called while somebody is subscribed.
function events.ended(job, record_frames)
    tell(job.tenant, '-', job.jobs, function() return Record.bare(record_frames, job.jobs) end)
end

end

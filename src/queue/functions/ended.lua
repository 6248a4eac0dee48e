-- The stream {q}:ended: an entry for each job that has ended, with what it used, while the limit `ended_jobs` is
-- not 0. Read next: completions.lua.

-- Adds an entry for each job that has ended with these record frames; the oldest go beyond the limit. The tenant,
-- the operation and the labels are those of the submission, whatever a worker wrote.
local function note_ended(job, record_frames)
    each_record_frame(record_frames, function(id, from)
        local used = Record.used(record_frames, from)
        local state = Record.state(record_frames, from) or 'failed'
        call('XADD', K.ended, 'MAXLEN', '~', whole(L.ended_jobs), '*', 'id', id, 'tenant', job.tenant,
             'op', job.op, 'labels', job.labels, 'state', state,
             'code', state == 'succeeded' and '' or Record.error(record_frames, from), 'device', used.device,
             'device_us', whole(used.device_us), 'energy_joules', format('%.6f', used.joules),
             'flops', format('%.15g', used.flops), 'bytes', whole(used.bytes),
             'created_us', job.us, 'finished_us', whole(used.finished))
    end)
end

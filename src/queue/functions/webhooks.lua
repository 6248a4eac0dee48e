-- Webhooks: which pending jobs' ends are to be told to a URL, and those of jobs that have ended until
-- they are delivered. Read next: tensors.lua.

local Hook = {}
do

local KIND = Lane.kind('hook', 'hooks', 'webhooks')

function KIND.text(id) return call('HGET', K.hooks, id) or nil end
function KIND.finished(text) return Record.finished(text, find(text, '\n', 1, true) + 1) end

function Hook.fits(tenant, url, most) return Lane.fits(KIND, tenant, {url}, most) end

function Hook.promise(tenant, url) Lane.promise(KIND, tenant, url) end

-- The job whose end is to be told there has ended, and its one record frame says how.
function Hook.ended(id, tenant, url, record_frame)
    Lane.add(KIND, tenant, url, id, url .. '\n' .. Record.frame(Record.not_later(record_frame), RECORD_FRAME_HEAD + 1))
end

function Hook.take(keys, args) return Lane.take(KIND, keys, args) end
function Hook.done(keys, args) return Lane.done(KIND, keys, args) end

end

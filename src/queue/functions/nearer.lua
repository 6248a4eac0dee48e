-- Jobs that are left to a worker which is nearer, for its device keeps copies of more of the tensors that they
-- refer to: unless it is behind by more than to move the difference takes. A job stays in its place; who
-- has left it to others for so long takes it, and an idle worker is told when to look again. Read next:
-- giving.lua.

local Near = {}
do

local MOVES = 10000     -- bytes a us, as over a bus
local PASSED_MOST = 256 -- jobs that one claim leaves to others

-- A claim begins, which leaves jobs to others only where several devices of the class keep copies.
function Near.begin(c, worker, class)
    if class == 2 and call('EXISTS', K.apart) == 1 then
        c.worker, c.left = worker, {}
        c.nearer, c.hands = {}, {} -- found once for each text of blobs, and worker
    end
end

-- us of work that the worker has in hand. One that has very much is behind, whatever that is.
local function in_hand(worker)
    if call('HLEN', K.claims_of .. worker) > PASSED_MOST then return math.huge end
    local us, _, metas = 0, resolve(claimed_names(worker))
    for _, meta in ipairs(metas) do
        local job = parse(meta)
        us = us + job.jobs * job.work
    end
    return us
end

-- To whom jobs that refer to these blobs might be left: {worker, us that moving takes}, ...
local function nearer_to(c, blobs)
    local nearer = c.nearer[blobs]
    if nearer then return nearer end
    nearer = Tensor.nearer(c.worker, blobs)
    c.nearer[blobs] = nearer
    for _, one in ipairs(nearer) do
        one[2] = one[2] / MOVES
        c.hands[one[1]] = c.hands[one[1]] or in_hand(one[1])
    end
    return nearer
end

-- Whether the claim leaves the job to another; `blobs`: what it refers to, if anything.
function Near.passes(c, name, job, blobs)
    if not blobs then return false end
    if c.left[name] then return true end -- it looks twice where one priority is aged
    if c.passed >= PASSED_MOST then return false end
    for _, one in ipairs(nearer_to(c, blobs)) do
        local worker, us = one[1], one[2]
        if c.hands[worker] - c.work <= us then
            call('HSETNX', K.passed, name, now_text)
            local left = us - (now - tonumber(call('HGET', K.passed, name)))
            if left <= 0 then return false end
            c.hands[worker] = c.hands[worker] + job.jobs * job.work
            c.left[name], c.passed, c.soon = true, c.passed + 1, min(c.soon, floor(left) + 1)
            return true
        end
    end
    return false
end

-- Ends the wait of an idle worker, with no jobs.
function Near.stir(worker)
    if call('LLEN', K.wake_of .. worker) == 0 then call('RPUSH', K.wake_of .. worker, '1') end
end

end

#!lua name=blasd_1
-- revision 5
--[[ The queue inside Redis: what its keys are and what each function does.

The library's name ends in the schema number of everything stored here; wire/frame.h says what
frames and records hold, which are only bytes here. Every function is atomic, and its effects enter
the append-only file as one transaction, so a replay never shows half of one. Who calls:
worker_queue.c and front_queue.c; redis_link.c loads this file.

KEYS. KEYS[1] of every call is "{NAME}", the hash tag of the queue, written {q} below; no key of
that very name exists. All others begin with it, so they lie in one slot of a cluster.
  {q}:s:CLASS:PRIO     stream of jobs, CLASS any|cpu|cuda, PRIO high|normal|low. Group `w` marks how
                       far it has been delivered (read with NOACK: Redis' own list of what is
                       delivered costs 2 us a job; one text a worker, `held`, says the same). An
                       entry is there as long as its job is pending. Fields: j = "ID US COST BLOB"
                       (when submitted on Redis' clock, cost in bytes, 1 if the inputs are the blob
                       ID.in, else 0), f = the frame with its inline payload
  {q}:pending          hash ID -> stub, exactly while the job is queued or running; whoever removes
                       it ends the job, so a job ends once. A stub is
                         "SI ENTRY US COST DEADLINE[ SEG]\tCHANNEL[,CHANNEL...]\tOP\tTENANT"
                       SI = 1 + 3 x class + priority, by the order of the enums (any high = 1, ...,
                       cuda low = 9); DEADLINE in us on Redis' clock, 0: none; SEG: the segment its
                       inputs lie in
  {q}:bytes            sum of the costs of pending jobs
  {q}:deadlines        zset ID -> DEADLINE, only of pending jobs that have one
  {q}:rec:KIND:B       hash ID -> PIECE with the final record. KIND s|a and B come from the id: B is
                       its second / 1 (s) or / 8 (a)
  {q}:out:KIND:B       hash ID -> bytes of the blob ID.out, of records that have one
  {q}:refs             hash SEG -> references to the segment SEG: pending jobs whose inputs lie in
                       it, and records whose outputs do; no field means none
  {q}:seg:KIND:B       hash SEG -> how many of these references are records of that bucket
  {q}:recs             zset "KIND:B" -> second in which the bucket expires (last finish + its time)
  {q}:recbytes         hash "KIND:B" -> bytes of records and their blobs; field `total`: of all
  {q}:gone             hash KIND -> the highest B dropped so far
  {q}:epoch            counter of leases
  {q}:workers          hash NAME -> "CLASS EPOCH INFO" (CLASS 1 cpu, 2 cuda; INFO a JSON object)
  {q}:lease:NAME       EPOCH, with an expiry: the worker lives exactly while this exists
  {q}:held:NAME        text "ID ID ...": jobs the worker has claimed; some may have ended
  {q}:run:NAME         text, a line for each batch that has begun and not ended: "US ID ID ..."
  {q}:prog:NAME        hash ID -> progress 0..1 of running jobs, where the worker reports any
  {q}:alone:CLASS      microsecond since when jobs of that class wait without a worker of it, with
                       an expiry
  {q}:attempts         hash ID -> workers that began the job and did not end it, only where > 0
  {q}:redo:CLASS       list of "SI ENTRY": jobs to be delivered again, before all others
  {q}:idle             hash NAME -> "CLASS MAX MAX_BYTES TURN [ID ...]", what it asked for in claim
                       and the jobs it still had: workers that found nothing and wait on
  {q}:wake:NAME        list that wakes the worker NAME from BLMPOP: "1", it must claim; or what
                       claim would have given it, now_us as a text: these jobs are its already
  {q}:idem:TENANT:KEY  "ID FINGERPRINT", with an expiry: the Idempotency-Keys in use
  {q}:store            identity of the deployment's blob store
  {q}:blobs            hash BLOB -> bytes: blobs of the store kind `redis`
  {q}:blob:BLOB:N      their bytes in pieces of 1 MiB (N = 0, 1, ...; the last one is shorter)
  {q}:hold:BLOB        with an expiry: such a blob is being written, so it must not be swept
  {q}:probe            with an expiry: written by front ends to see that Redis takes writes
  {q}:sweeping         with an expiry: somebody has swept the store this period

FUNCTIONS. Called as FCALL blasd_1_<name> 1 {q} LIMITS ... . LIMITS, the first argument of all, is
the text that blasd_link_limits makes: "attempts record_bytes record_sync_s record_async_s
queue_jobs queue_bytes lease_ms record_sync_bytes". Times are microseconds on Redis' clock, as
integers. A RECORD in a reply is a final record as it was given to finish, or a terse text record,
made here, of a job that is queued or running or that no worker ended. A terse record is 14 lines
joined by "\n" with no newline at the end:
  T1, state, id, op, priority (names), created_us, started_us, finished_us (0: not yet), progress (0
  to 1), attempts (workers that began it so far, the present one included), error code's name or "",
  device id of the worker (member `id` of its INFO) or "", tenant, the class whose workers it
  was sent to (name)
Where a job is unknown the reply holds an integer in the record's place: 404 there never was such a
job, or it was deleted; 410 its record has expired.

Front ends call
  open IDENTITY REPLACE
      -> the identity recorded (IDENTITY itself where it was the first, or REPLACE is 1). Makes
      streams and groups. To be called on each new connection before anything else
  submit, then 6 for each job: ID FRAME SI COST OPTIONS NOTE
      -> {now_us, jobs, bytes, r1, ...} with jobs and bytes pending after it.
      OPTIONS: "" or words joined by one space, k= the last, each optional: d=DEADLINE_MS; b=1 (the
      inputs are the blob ID.in); B=1 (the same, in a store of kind redis: checked to be there);
      r=1 (sent again after its reply was missed: a job of this ID that is there counts as queued);
      k=FINGERPRINT:KEY (to the end of the text; KEY may hold any byte, FINGERPRINT no colon).
      NOTE: "[ SEG]\tCHANNEL\tOP\tTENANT", CHANNEL "" where nobody waits.
      r: integer 0 queued; 1 full (by count or bytes); 2 the key was used for another request; 3 the
      blob ID.in is not there; 4 ID, SI or COST is malformed; or, where the key was used for the
      same request, an array {ID of the earlier job, its RECORD where it has ended and a CHANNEL was
      given, else ""}; where it has not ended, CHANNEL now watches it
  get ID...               -> {RECORD or 404|410, ...}
  watch CHANNEL ID...     -> the same; CHANNEL is told when those that have not ended end
  unwatch CHANNEL ID...   -> 0
  cancel ID...
      -> {RECORD or 404|410, ...}: a pending job ends as cancelled; an ended one is forgotten, and
      the record is what it was. The caller removes the blobs ID.in and ID.out in either case
  list WHICH LIMIT
      -> {RECORD, ...}, newest first. WHICH: queued, running, ended or any. May hold up to LIMIT of
      each kind of place (running, queued, ended): the caller sorts, filters and cuts. At most 8 MiB
      of records; where there are very many, a sample of the newest
  stats
      -> JSON text {"workers":{NAME:INFO,...},"queue":{"jobs":...,"bytes":...,"running":...,
      "records_bytes":...,"any":{"high":{"queued":...,"claimed":...},...},"cpu":...,"cuda":...}}
  refs BLOB...
      -> text of one digit for each: 1 referred to (ID.in while the job is pending; ID.out while it
      is pending or its record lives; both while on hold; SEG.seg while it has references), 0 not
  tick
      -> {now_us, jobs, bytes, cpu workers, cuda workers, blobs set free (> 0: worth a sweep), next
      deadline or 0}: housekeeping that anyone may do: passed deadlines, lapsed leases, expired
      records. Each front end calls it about once a second, and may at the next deadline
  blob BLOB BYTES
      -> 0: notes a blob of kind redis and puts it on hold for two minutes. Call it before the
      pieces are SET, each minute meanwhile, and after them
  blob_drop BLOB...       -> 0: removes blobs of kind redis

Workers call (all that carry NAME EPOCH answer with the error "LOST ...", and do nothing, where the
lease is not theirs any more)
  register NAME CLASS INFO IDENTITY
      -> {now_us, EPOCH}; error "STORE ..." where the identity recorded is another
  renew NAME EPOCH INFO   -> as tick, which it includes
  release NAME EPOCH      -> 0: gives back what it held, and the name
  bury NAME               -> 0: the same for a worker known to be dead
  claim NAME EPOCH CLASS MAX MAX_BYTES TURN WAS_IDLE CHECK HELD
      -> {now_us, j1, f1, j2, f2, ...}; j as in the entry, with " ATTEMPTS" behind it where the job
      is delivered again. With no jobs the worker is now idle: it waits in BLMPOP {q}:wake:NAME. A
      few jobs that come then are handed over in that list, which saves it the next claim.
      TURN counts claims and drives ageing. WAS_IDLE 1: the last claim had no jobs. HELD: "ID ID
      ..." of the jobs it still has. CHECK 1: a reply may have been missed, so jobs that are noted
      as held by it but are not in HELD go back
  begin NAME EPOCH TEXT   -> 0: TEXT becomes {q}:run:NAME
  finish NAME EPOCH RESENT, then 3 for each job: ID PIECE OUTPUTS
      -> text of a digit for each: 1 accepted, 0 had ended otherwise. RESENT 1: the reply was
      missed; what is recorded just so counts as accepted. OUTPUTS: "0", they are in the record;
      "BYTES", in the blob ID.out; "BYTES SEG", in that segment. RESENT may be followed by
      " CLASS MAX MAX_BYTES TURN", as in claim, from a worker that holds nothing else: where nothing
      is pending any more it is then idle, as after a claim without jobs, and "i" ends the text
  progress NAME EPOCH PROGRESS ID...
      -> text of a digit for each: 1 still wanted, 0 not

A PIECE is [4 bytes: length of the record, little-endian][41 bytes: ID][RECORD]. What is PUBLISHED
on a CHANNEL when jobs that it watches end is one or more pieces: one message a call, split near
1 MiB. ]]

local CLASSES = {'any', 'cpu', 'cuda'}
local PRIORITIES = {'high', 'normal', 'low'}
local CLASS_OF = {['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 2, ['5'] = 2, ['6'] = 2, ['7'] = 3,
                  ['8'] = 3, ['9'] = 3} -- position in CLASSES, by SI
local WIDTH = {s = 1, a = 8} -- seconds of a record bucket, by the id's kind
local MANY = 2000            -- arguments of one command; Lua's stack holds some 8,000
local RECORD_OVERHEAD = 128  -- bytes that Redis itself spends on a record
local PIECE_HEAD = 45        -- bytes of a piece before its record

-- Filled in by the first call: while this file is loaded there are no globals but `redis`.
local call, format, find, match, gmatch, sub, byte, concat, floor, min, max

-- What the running call works with; set by start.
local K               -- names of the keys
local L               -- limits
local now, now_text   -- microseconds on Redis' clock, as number and as text
local buckets, bucket_count = {}, 0 -- memory of bucket_of

-- The names of keys, made once for each queue.
local key_tables, key_table_count = {}, 0
local function key_table(q)
    local k = key_tables[q]
    if k then return k end
    k = {s = {}, redo = {}}
    for _, noun in ipairs({'pending', 'bytes', 'deadlines', 'recs', 'recbytes', 'gone', 'epoch',
                           'workers', 'attempts', 'idle', 'store', 'blobs', 'refs'}) do
        k[noun] = q .. ':' .. noun
    end
    for _, noun in ipairs({'lease', 'held', 'run', 'prog', 'wake', 'rec', 'out', 'seg', 'idem',
                           'blob', 'hold', 'alone'}) do
        k[noun .. '_of'] = q .. ':' .. noun .. ':'
    end
    for c, class in ipairs(CLASSES) do
        for p, priority in ipairs(PRIORITIES) do
            local si = tostring((c - 1) * 3 + p)
            k.s[si] = q .. ':s:' .. class .. ':' .. priority
            k.redo[si] = q .. ':redo:' .. class
        end
    end
    if key_table_count >= 64 then key_tables, key_table_count = {}, 0 end
    key_tables[q], key_table_count = k, key_table_count + 1
    return k
end

local limits_text
local function prepare(keys, args)
    if not call then
        call = redis.call
        format, find, match, gmatch = string.format, string.find, string.match, string.gmatch
        sub, byte, concat = string.sub, string.byte, table.concat
        floor, min, max = math.floor, math.min, math.max
    end
    K = key_table(keys[1])
    if args[1] ~= limits_text then
        local n = {}
        for word in gmatch(args[1] or '', '%S+') do n[#n + 1] = tonumber(word) end
        if #n ~= 8 then error('LIMITS must be eight numbers') end
        L = {attempts = n[1], record_bytes = n[2], ttl = {s = n[3], a = n[4]}, queue_jobs = n[5],
             queue_bytes = n[6], lease_ms = n[7], record_sync_bytes = n[8]}
        limits_text = args[1]
    end
end

local function start(keys, args)
    prepare(keys, args)
    local t = call('TIME')
    now_text = t[1] .. sub('00000' .. t[2], -6)
    now = tonumber(now_text)
end

local function whole(number) return format('%.0f', number) end

-- call(command, key, list...), in pieces that Lua's stack can hold.
local function call_many(command, key, list)
    local n = #list
    if n == 0 then return end
    if n <= MANY then return call(command, key, unpack(list)) end
    for i = 1, n, MANY do call(command, key, unpack(list, i, min(i + MANY - 1, n))) end
end

-- HMGET of any number of fields.
local function get_many(key, fields, from)
    from = from or 1
    local n = #fields
    if n < from then return {} end
    if n - from < MANY then return call('HMGET', key, unpack(fields, from)) end
    local all = {}
    for i = from, n, MANY do
        for _, value in ipairs(call('HMGET', key, unpack(fields, i, min(i + MANY - 1, n)))) do
            all[#all + 1] = value
        end
    end
    return all
end

-- The record bucket of an id, "KIND:B", or nil where it is no id.
local function bucket_of(id)
    local head = sub(id, 1, 9)
    local bucket = buckets[head]
    if bucket then return bucket end
    local kind, second = match(head, '^([sa])(%x%x%x%x%x%x%x%x)$')
    if not kind then return nil end
    bucket = kind .. ':' .. floor(tonumber(second, 16) / WIDTH[kind])
    if bucket_count >= 1000 then buckets, bucket_count = {}, 0 end
    buckets[head], bucket_count = bucket, bucket_count + 1
    return bucket
end

-- Stubs

-- A stub that nothing here has written must not stop the jobs beside it: its own job can still be
-- read, ended and cancelled.
local function parse(stub)
    local si, entry, us, cost, deadline, seg, channels, op, tenant =
        match(stub, '^([1-9]) (%d+%-%d+) (%d+) (%d+) (%d+) ?(%x*)\t([^\t]*)\t([^\t]*)\t([^\t]*)')
    if not si then
        return {si = '2', entry = '0-1', us = now_text, cost = 0, deadline = 0, seg = '',
                channels = '', op = 'unknown', tenant = 'anonymous'}
    end
    return {si = si, entry = entry, us = us, cost = tonumber(cost), deadline = tonumber(deadline),
            seg = seg, channels = channels, op = op, tenant = tenant}
end

-- What finish needs of a stub: SI, ENTRY, cost, DEADLINE, SEG, CHANNELs; nil where nothing here has
-- written it. Patterns cost several times what plain searches do, and of most stubs the middle and
-- the end are those of the stub before.
local HEAD_AT = 18 -- "COST DEADLINE[ SEG]" begins so far behind the entry's end: US has 16 digits
local last_head, last_cost, last_deadline, last_seg, last_tail, last_channels
local function split(stub)
    local tab = find(stub, '\t', 1, true)
    local stop = tab and find(stub, ' ', 3, true)
    if not stop or byte(stub, 2) ~= 32 or byte(stub, stop + HEAD_AT - 1) ~= 32 then return nil end
    local si, entry = sub(stub, 1, 1), sub(stub, 3, stop - 1)
    local head, tail = sub(stub, stop + HEAD_AT, tab - 1), sub(stub, tab + 1)
    if not K.s[si] or not find(entry, '^%d+%-%d+$') then return nil end
    if head ~= last_head then
        local cost, deadline, seg = match(head, '^(%d+) (%d+) ?(%x*)$')
        if not cost then return nil end
        last_head, last_cost, last_deadline, last_seg = head, tonumber(cost), deadline, seg
    end
    if tail ~= last_tail then last_tail, last_channels = tail, match(tail, '^[^\t]*') end
    return si, entry, last_cost, last_deadline, last_seg, last_channels
end

local function priority_of(si) return PRIORITIES[(tonumber(si) - 1) % 3 + 1] end

-- Which jobs run: what the live workers said in begin

-- A finder: finder(id) gives the worker's name and the start, or nil. It will be asked for `count`
-- ids.
local function running_finder(count)
    local texts, index
    return function(id)
        if not texts then
            texts = {}
            for _, name in ipairs(call('HKEYS', K.workers)) do
                local text = call('GET', K.run_of .. name)
                if text then texts[#texts + 1] = {name, text} end
            end
            if count > 16 then
                index = {}
                for _, pair in ipairs(texts) do
                    for line in gmatch(pair[2], '[^\n]+') do
                        local us, rest = match(line, '^(%d+)(.*)$')
                        for one in gmatch(rest or '', '%S+') do index[one] = {pair[1], us} end
                    end
                end
            end
        end
        if index then
            local hit = index[id]
            if hit then return hit[1], hit[2] end
            return nil
        end
        for _, pair in ipairs(texts) do
            if find(pair[2], id, 1, true) then
                for line in gmatch(pair[2], '[^\n]+') do
                    if find(line, id, 1, true) then return pair[1], match(line, '^%d+') end
                end
            end
        end
        return nil
    end
end

local function device_of(worker)
    local text = call('HGET', K.workers, worker)
    local ok, info = pcall(cjson.decode, match(text or '', '^%S+ %S+ (.*)$') or '')
    if ok and type(info) == 'table' and type(info.id) == 'string' and not find(info.id, '%c') then
        return info.id
    end
    return ''
end

-- Terse records

-- The record of a job that no worker has ended: queued or running where `state` is nil.
local function terse(id, job, state, code, finder)
    local worker, started = finder(id)
    local attempts = tonumber(call('HGET', K.attempts, id) or 0)
    local progress, device = '0', ''
    if worker then
        if state ~= 'failed' then attempts = attempts + 1 end
        progress = call('HGET', K.prog_of .. worker, id) or '0'
        device = device_of(worker)
    end
    return concat({'T1', state or (worker and 'running' or 'queued'), id, job.op,
                   priority_of(job.si), job.us, started or '0', state and now_text or '0', progress,
                   tostring(attempts), code or '', device, job.tenant,
                   CLASSES[CLASS_OF[job.si]]}, '\n')
end

-- Ending jobs, many at a time

local function ending_new()
    return {count = 0, ids = {}, entries = {}, cost = 0, segs = {}, into = {}, told = {}}
end

local function ending_tell(e, channel, piece)
    local told = e.told[channel]
    if not told then
        told = {bytes = 0}
        e.told[channel] = told
    elseif told.bytes + #piece > 1048576 then
        call('PUBLISH', channel, concat(told))
        told = {bytes = 0}
        e.told[channel] = told
    end
    told[#told + 1] = piece
    told.bytes = told.bytes + #piece
end

-- Changes the number of references to a segment.
local function refer(seg, by)
    if call('HINCRBY', K.refs, seg, by) <= 0 then call('HDEL', K.refs, seg) end
end

-- Notes that the pending job `id` has ended with `piece`. `seg` held its inputs, `out_seg` holds
-- its outputs; '': none. `out_bytes` lie outside the record.
local function ending_add(e, id, si, entry, cost, seg, channels, piece, out_bytes, out_seg)
    local count = e.count + 1
    e.count, e.ids[count] = count, id
    local entries = e.entries[si]
    if entries then entries[#entries + 1] = entry else e.entries[si] = {entry} end
    e.cost = e.cost + cost
    if seg ~= '' then e.segs[seg] = (e.segs[seg] or 0) - 1 end
    local bucket = bucket_of(id)
    local into = e.into[bucket]
    if not into then
        into = {count = 0, bytes = 0, records = {}, outs = {}, segs = {}}
        e.into[bucket] = into
    end
    local n, records = into.count, into.records
    records[n + 1], records[n + 2], into.count = id, piece, n + 2
    into.bytes = into.bytes + #piece + out_bytes + RECORD_OVERHEAD
    if out_seg ~= '' then
        into.segs[out_seg] = (into.segs[out_seg] or 0) + 1
    elseif out_bytes > 0 then
        local outs = into.outs
        outs[#outs + 1], outs[#outs + 2] = id, whole(out_bytes)
    end
    if channels == '' then return end
    if channels ~= e.one_channel and find(channels, ',', 1, true) then
        for channel in gmatch(channels, '[^,]+') do ending_tell(e, channel, piece) end
    else
        e.one_channel = channels
        ending_tell(e, channels, piece)
    end
end

-- Forgets a bucket of records; returns how many blobs nobody refers to any more.
local function bucket_drop(bucket)
    local blobs, segs = call('HLEN', K.out_of .. bucket), call('HGETALL', K.seg_of .. bucket)
    for i = 1, #segs, 2 do refer(segs[i], '-' .. segs[i + 1]) end
    call('UNLINK', K.rec_of .. bucket, K.out_of .. bucket, K.seg_of .. bucket)
    local bytes = call('HGET', K.recbytes, bucket)
    if bytes then
        call('HDEL', K.recbytes, bucket)
        call('HINCRBY', K.recbytes, 'total', '-' .. bytes)
    end
    call('ZREM', K.recs, bucket)
    local kind, b = match(bucket, '^(%a):(%d+)$')
    local gone = tonumber(call('HGET', K.gone, kind) or -1)
    if tonumber(b) > gone then call('HSET', K.gone, kind, b) end
    return blobs
end

-- Drops the buckets whose last record ended longest ago until the records fit; one always stays.
local function buckets_fit(total, most)
    local blobs = 0
    for _ = 1, most do
        if total <= L.record_bytes or call('ZCARD', K.recs) < 2 then break end
        blobs = blobs + bucket_drop(call('ZRANGE', K.recs, 0, 0)[1])
        total = tonumber(call('HGET', K.recbytes, 'total') or 0)
    end
    return blobs
end

-- The same for results that were waited for, which have a limit of their own: of the newest buckets
-- as many stay as fit.
local function buckets_fit_sync()
    local sync, sum, blobs = {}, 0, 0
    for _, bucket in ipairs(call('ZRANGE', K.recs, 0, -1)) do
        if byte(bucket) == 115 then sync[#sync + 1] = bucket end
    end
    local bytes = get_many(K.recbytes, sync)
    for i = #sync, 1, -1 do
        sum = sum + tonumber(bytes[i] or 0)
        if i < #sync and sum > L.record_sync_bytes then blobs = blobs + bucket_drop(sync[i]) end
    end
    return blobs
end

-- Returns the bytes of jobs that are still pending.
local function ending_commit(e, worker)
    if e.count == 0 then return 0 end
    for si, entries in pairs(e.entries) do call_many('XDEL', K.s[si], entries) end
    call_many('HDEL', K.pending, e.ids)
    local left = call('DECRBY', K.bytes, whole(e.cost))
    local prog = worker and K.prog_of .. worker or K.attempts
    if call('EXISTS', K.deadlines, K.attempts, prog) > 0 then
        call_many('ZREM', K.deadlines, e.ids)
        call_many('HDEL', K.attempts, e.ids)
        if worker then call_many('HDEL', prog, e.ids) end
    end
    for seg, by in pairs(e.segs) do refer(seg, by) end
    local sum = 0
    for bucket, into in pairs(e.into) do
        for seg, by in pairs(into.segs) do
            refer(seg, by)
            call('HINCRBY', K.seg_of .. bucket, seg, by)
        end
        call_many('HSET', K.rec_of .. bucket, into.records)
        call_many('HSET', K.out_of .. bucket, into.outs)
        call('HINCRBY', K.recbytes, bucket, whole(into.bytes))
        call('ZADD', K.recs, 'GT', floor(now / 1000000) + L.ttl[sub(bucket, 1, 1)] + 1, bucket)
        sum = sum + into.bytes
    end
    local total = call('HINCRBY', K.recbytes, 'total', whole(sum))
    if total > L.record_bytes then buckets_fit(total, 4) end
    for channel, told in pairs(e.told) do call('PUBLISH', channel, concat(told)) end
    return left
end

-- Ends a pending job without a worker; returns its record.
local function ending_add_terse(e, id, job, state, code, finder)
    local record = terse(id, job, state, code, finder)
    local piece = struct.pack('<I4', #record) .. id .. record
    ending_add(e, id, job.si, job.entry, job.cost, job.seg, job.channels, piece, 0, '')
    return record
end

-- Ends jobs whose deadline has passed; true where there may be more.
local function expire_due()
    local ids = call('ZRANGE', K.deadlines, '-inf', now_text, 'BYSCORE', 'LIMIT', 0, 100)
    if #ids == 0 then return false end
    local e, finder = ending_new(), running_finder(#ids)
    for i, stub in ipairs(get_many(K.pending, ids)) do
        if stub then
            ending_add_terse(e, ids[i], parse(stub), 'expired', 'deadline_exceeded', finder)
        end
    end
    ending_commit(e)
    call_many('ZREM', K.deadlines, ids)
    return #ids == 100
end

-- Giving jobs to a worker

-- Puts a job back at the head of its class; wakes nobody.
local function redo(job)
    call('RPUSH', K.redo[job.si], job.si .. ' ' .. job.entry)
end

-- One claim in the making.
local function claim_add(c, id, j, frame, cost)
    local n, reply = c.count + 1, c.reply
    c.count = n
    c.room = c.room - cost
    c.frames = c.frames + #frame
    c.held[n + 1] = id -- after HELD
    reply[2 * n], reply[2 * n + 1] = j, frame -- after now_us
    if c.frames > 33554432 then c.full = true end
end

local function claim_redo(c, key)
    while c.count < c.most and not c.full do
        local item = call('LPOP', key)
        if not item then return end
        local si, entry = match(item, '^(%d) (%S+)$')
        local found = call('XRANGE', K.s[si], entry, entry)[1] -- none: the job has ended meanwhile
        if found then
            local j, frame = found[2][2], found[2][4]
            local id, cost = match(j, '^(%S+) %d+ (%d+)')
            cost = tonumber(cost)
            if cost > c.room and c.count > 0 then
                call('LPUSH', key, item)
                c.full = true
            else
                claim_add(c, id, j .. ' ' .. (call('HGET', K.attempts, id) or '0'), frame, cost)
            end
        end
    end
end

-- Takes up to `quota` new jobs from one stream. What was read beyond the bytes goes to the redo
-- list, so it reads no more than will fit if jobs are of average size.
local function claim_stream(c, si, quota)
    if c.only and not c.only[si] then return end
    while quota > 0 and c.count < c.most and not c.full do
        local n = max(1, min(quota, c.most - c.count, 512, floor(c.room / c.mean)))
        local r = call('XREADGROUP', 'GROUP', 'w', 'w', 'COUNT', n, 'NOACK', 'STREAMS', K.s[si],
                       '>')
        if not r then return end
        local entries = r[1][2]
        for _, e in ipairs(entries) do
            local j, frame = e[2][2], e[2][4]
            local id, cost = sub(j, 1, 41), 0
            if c.tight then cost = tonumber(match(j, '^%d+ (%d+)', 43)) or 0 end
            if not frame or not bucket_of(id) or not find(j, '^ %d+ %d+ [01]$', 42) then
                -- not an entry of ours
                call('XDEL', K.s[si], e[1])
            elseif c.full or (cost > c.room and c.count > 0) then
                c.full = true
                redo({si = si, entry = e[1]})
            else
                claim_add(c, id, j, frame, cost)
            end
        end
        if #entries < n then return end
        quota = quota - n
    end
end

-- Gives jobs to the worker: what claim replies with is then in the result's `reply`, and its `held`
-- are noted. `room` in bytes; `held` are the ids it has already. `all`: nil, or {jobs, bytes, a set
-- of SI} where these are all that is pending, in the streams of that set and given to nobody.
local function claim_take(name, class, most, room, turn, held, all)
    local jobs = all and all.jobs or call('HLEN', K.pending)
    local bytes = all and all.bytes or tonumber(call('GET', K.bytes) or 0)
    local c = {most = most, room = room, mean = max(1, bytes / max(jobs, 1)), tight = bytes > room,
               count = 0, frames = 0, full = false, held = {held}, reply = {now}, only = all and all.streams}
    local own, any = class * 3, 0
    if jobs == 0 then return c end
    if not all and call('EXISTS', K.redo[tostring(own + 1)], K.redo['1']) > 0 then
        claim_redo(c, K.redo[tostring(own + 1)])
        claim_redo(c, K.redo['1'])
    end
    -- Ageing: of each eight claims one gives normal, and one low, the first half.
    local aged = turn % 8 == 3 and 2 or turn % 8 == 7 and 3 or nil
    if aged then
        local half = floor((c.most + 1) / 2)
        claim_stream(c, tostring(own + aged), half)
        claim_stream(c, tostring(any + aged), half - min(half, c.count))
    end
    for p = 1, 3 do
        claim_stream(c, tostring(own + p), c.most)
        claim_stream(c, tostring(any + p), c.most)
    end
    if c.count > 0 then call('SET', K.held_of .. name, concat(c.held, ' ')) end
    return c
end

-- Workers: waking, leases, recovery

-- Gives an idle worker jobs, or just wakes it.
local function hand_over(name, asked, most, all)
    local class, max_jobs, room, turn, held = match(asked, '^(%d) (%d+) (%d+) (%d+) ?(.*)$')
    local reply = {'1'}
    if class then
        local c = claim_take(name, tonumber(class), min(most, tonumber(max_jobs)), tonumber(room),
                             tonumber(turn), held, all)
        if c.count > 0 then
            reply = c.reply
            reply[1] = now_text
        end
    end
    call_many('RPUSH', K.wake_of .. name, reply)
end

-- Wakes idle workers for that many new jobs of each class. `new`: how many jobs there are, where
-- they are handed over if they are few (what passes a list is written, and logged, once more);
-- `all` as in claim_take.
local HANDED = 8
local function wake(any, cpu, cuda, new, all)
    local idle = call('HGETALL', K.idle)
    for i = 1, #idle, 2 do
        local name, class, fits = idle[i], sub(idle[i + 1], 1, 1), true
        if class == '1' and cpu > 0 then
            cpu = cpu - 1
        elseif class == '2' and cuda > 0 then
            cuda = cuda - 1
        elseif any > 0 then
            any = any - 1
        else
            fits = false
        end
        if fits then
            call('HDEL', K.idle, name)
            if new and new <= HANDED then
                hand_over(name, idle[i + 1], floor((2 * new - 1) / #idle) + 1, all) -- its share
            else
                call('RPUSH', K.wake_of .. name, '1')
            end
        end
    end
end

-- Gives back all that the worker holds, and forgets it. What it had begun has cost one attempt.
local function recover(name)
    local begun, ids, seen = {}, {}, {}
    for line in gmatch(call('GET', K.run_of .. name) or '', '[^\n]+') do
        for id in gmatch(match(line, '^%d+(.*)$') or '', '%S+') do
            begun[id] = true
            if not seen[id] then seen[id], ids[#ids + 1] = true, id end
        end
    end
    for id in gmatch(call('GET', K.held_of .. name) or '', '%S+') do
        if not seen[id] then seen[id], ids[#ids + 1] = true, id end
    end
    local e, finder, count = ending_new(), running_finder(1), {0, 0, 0}
    for i, stub in ipairs(get_many(K.pending, ids)) do
        if stub then
            local id, job = ids[i], parse(stub)
            if begun[id] and call('HINCRBY', K.attempts, id, 1) >= L.attempts then
                ending_add_terse(e, id, job, 'failed', 'poisoned', finder)
            else
                redo(job)
                count[CLASS_OF[job.si]] = count[CLASS_OF[job.si]] + 1
            end
        end
    end
    ending_commit(e)
    call('DEL', K.lease_of .. name, K.held_of .. name, K.run_of .. name, K.prog_of .. name,
         K.wake_of .. name)
    call('HDEL', K.workers, name)
    call('HDEL', K.idle, name)
    if count[1] + count[2] + count[3] > 0 then wake(count[1], count[2], count[3]) end
end

-- nil, or the error for a worker whose lease is not its own any more.
local function lapsed(name, epoch)
    if call('GET', K.lease_of .. name) == epoch then return nil end
    return redis.error_reply('LOST the lease of this worker has lapsed')
end

local function make_groups()
    for _, stream in pairs(K.s) do redis.pcall('XGROUP', 'CREATE', stream, 'w', '0', 'MKSTREAM') end
end

-- Whether a stream holds entries that nobody has been given.
local function has_backlog(stream)
    local groups = redis.pcall('XINFO', 'GROUPS', stream)
    if groups.err or not groups[1] then return false end
    local last
    for i = 1, #groups[1], 2 do
        if groups[1][i] == 'last-delivered-id' then last = groups[1][i + 1] end
    end
    return #call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1) > 0
end

-- Idle workers beside waiting jobs are a mistake that nothing here makes, but a worker can die
-- between being woken and claiming.
local function wake_for_backlog()
    if call('HLEN', K.idle) == 0 then return end
    local count = {0, 0, 0}
    for si, stream in pairs(K.s) do
        local class = CLASS_OF[si]
        if has_backlog(stream) then count[class] = count[class] + 1 end
    end
    for class = 1, 3 do count[class] = count[class] + call('LLEN', K.redo[tostring(class * 3)]) end
    wake(count[1], count[2], count[3])
end

-- Whether jobs wait in the streams of a class.
local function class_waits(class)
    for p = 1, 3 do
        if call('XLEN', K.s[tostring((class - 1) * 3 + p)]) > 0 then return true end
    end
    return false
end

-- What no worker of the class has been given yet goes to its redo list, in order.
local function deliver_to_redo(si)
    for _ = 1, 8 do
        local r = call('XREADGROUP', 'GROUP', 'w', 'w', 'COUNT', 32, 'NOACK', 'STREAMS', K.s[si],
                       '>')
        if not r then return end
        for _, e in ipairs(r[1][2]) do redo({si = si, entry = e[1]}) end
    end
end

-- Jobs that were only sent to a class because it seemed the faster one, their frame (byte 13: the
-- device class their user asked for) saying any, and for which no worker of it has lived for
-- ALONE_US, are for whoever comes.
local ALONE_US = 5000000
local function reroute(class)
    local key = K.alone_of .. CLASSES[class]
    local since = tonumber(call('GET', key) or 0)
    if since == 0 or now - since < ALONE_US then
        if since == 0 then call('SET', key, now_text) end
        call('EXPIRE', key, 60)
        return
    end
    call('EXPIRE', key, 60)
    local list, any = K.redo[tostring(class * 3)], K.redo['1']
    for p = 1, 3 do deliver_to_redo(tostring((class - 1) * 3 + p)) end
    for _ = 1, min(call('LLEN', list), 256) do
        local item = call('LPOP', list)
        local si, entry = match(item, '^(%d) (%S+)$')
        local found = call('XRANGE', K.s[si], entry, entry)[1] -- none: the job has ended meanwhile
        if found then
            local frame = found[2][4]
            local wish = frame and sub(frame, 1, 4) == 'BLJF' and byte(frame, 14)
            call('RPUSH', wish == 0 and any or list, item)
        end
    end
end

local function reroute_stranded(live)
    for class = 2, 3 do
        if live[class - 1] == 0 then
            if class_waits(class) then reroute(class) end
        elseif call('EXISTS', K.alone_of .. CLASSES[class]) == 1 then
            call('DEL', K.alone_of .. CLASSES[class])
        end
    end
end

local function housekeeping()
    for _ = 1, 10 do
        if not expire_due() then break end
    end
    local workers, live = call('HGETALL', K.workers), {0, 0}
    for i = 1, #workers, 2 do
        if call('EXISTS', K.lease_of .. workers[i]) == 0 then
            recover(workers[i])
        else
            local class = tonumber(sub(workers[i + 1], 1, 1))
            live[class] = (live[class] or 0) + 1
        end
    end
    local blobs = 0
    local old = call('ZRANGE', K.recs, '-inf', floor(now / 1000000), 'BYSCORE', 'LIMIT', 0, 16)
    for _, bucket in ipairs(old) do blobs = blobs + bucket_drop(bucket) end
    local total = tonumber(call('HGET', K.recbytes, 'total') or 0)
    if total > L.record_sync_bytes then blobs = blobs + buckets_fit_sync() end
    if total > L.record_bytes then blobs = blobs + buckets_fit(total, 64) end
    reroute_stranded(live)
    wake_for_backlog()
    local first = call('ZRANGE', K.deadlines, 0, 0, 'WITHSCORES')
    return {now, call('HLEN', K.pending), tonumber(call('GET', K.bytes) or 0), live[1], live[2],
            blobs, tonumber(first[2] or 0)}
end

-- Front ends

local function open(keys, args)
    start(keys, args)
    if args[3] == '1' then call('SET', K.store, args[2]) else call('SETNX', K.store, args[2]) end
    make_groups()
    return call('GET', K.store)
end

-- The final record of `id`, or nil; the second result is the piece it is in.
local function recorded(id)
    local bucket = bucket_of(id)
    local piece = bucket and call('HGET', K.rec_of .. bucket, id)
    if not piece then return nil end
    return sub(piece, PIECE_HEAD + 1), piece
end

local function unknown(id)
    local bucket = bucket_of(id)
    if not bucket then return 404 end
    local kind, b = match(bucket, '^(%a):(%d+)$')
    local gone = tonumber(call('HGET', K.gone, kind) or -1)
    local ended_by = (tonumber(b) + 1) * WIDTH[kind] + L.ttl[kind]
    return (tonumber(b) <= gone or ended_by * 1000000 < now) and 410 or 404
end

-- Adds or takes out a channel of a stub; returns the stub as it then is.
local function stub_watch(id, stub, channel, on)
    local head, channels, tail = match(stub, '^([^\t]*)\t([^\t]*)(\t.*)$')
    local kept = {}
    if not head then return stub end
    for one in gmatch(channels, '[^,]+') do
        if one ~= channel then kept[#kept + 1] = one end
    end
    if on then kept[#kept + 1] = channel end
    local changed = head .. '\t' .. concat(kept, ',') .. tail
    if changed ~= stub then call('HSET', K.pending, id, changed) end
    return changed
end

-- Where a submission stands whose Idempotency-Key is `key`: nil to go on, else its reply.
local function repeated(key, fingerprint, channel)
    local text = call('GET', key)
    if not text then return nil end
    local id, print = match(text, '^(%S+) (%S+)$')
    local stub = call('HGET', K.pending, id)
    local record = not stub and recorded(id)
    if not stub and not record then return nil end -- its record has expired, so the key is free
    if print ~= fingerprint then return 2 end
    if channel == '' then return {id, ''} end
    if stub then
        stub_watch(id, stub, channel, true)
        return {id, ''}
    end
    return {id, record}
end

local function submit(keys, args)
    start(keys, args)
    if #args % 6 ~= 1 then return redis.error_reply('ERR submit takes six arguments a job') end
    local jobs, bytes = call('HLEN', K.pending), tonumber(call('GET', K.bytes) or 0)
    local before, reply, stubs, count, tried = bytes, {now, 0, 0}, {}, {0, 0, 0}, false
    local seg, seg_jobs, seg_note, streams = nil, 0, nil, {}
    local cost_text, cost, when -- the same for many jobs as a rule
    for i = 2, #args, 6 do
        local id, si = args[i], args[i + 2]
        if args[i + 3] ~= cost_text then
            cost_text = args[i + 3]
            cost, when = tonumber(cost_text), ' ' .. now_text .. ' ' .. cost_text .. ' '
        end
        local options, note = args[i + 4], args[i + 5]
        local r, deadline, blob, idem, fingerprint = 0, nil, '0', nil, nil
        if not (cost and K.s[si] and bucket_of(id)) then
            options, r = '', 4
        end
        if options ~= '' then
            call_many('HSET', K.pending, stubs) -- earlier jobs of this call must be seen
            stubs = {}
            local head, print, key = match(options, '^(.-)k=([^:]*):(.*)$')
            head = ' ' .. (head or options)
            local ms = tonumber(match(head, ' d=(%d+)') or 0)
            if ms > 0 then deadline = whole(now + ms * 1000) end
            if find(head, ' [bB]=1') then blob = '1' end
            if find(head, ' B=1') and call('HEXISTS', K.blobs, id .. '.in') == 0 then r = 3 end
            if find(head, ' r=1') and (call('HEXISTS', K.pending, id) == 1 or recorded(id)) then
                r = -1
            end
            if key and r == 0 then
                local channel, tenant = match(note, '^[^\t]*\t([^\t]*)\t[^\t]*\t(.*)$')
                idem, fingerprint = K.idem_of .. tenant .. ':' .. key, print
                r = repeated(idem, print, channel) or 0
            end
        end
        if r == 0 and (jobs >= L.queue_jobs or bytes + cost > L.queue_bytes) then
            if not tried then
                tried = true
                call_many('HSET', K.pending, stubs)
                if bytes ~= before then call('INCRBY', K.bytes, whole(bytes - before)) end
                stubs = {}
                expire_due()
                jobs, bytes = call('HLEN', K.pending), tonumber(call('GET', K.bytes) or 0)
                before = bytes
            end
            if jobs >= L.queue_jobs or bytes + cost > L.queue_bytes then r = 1 end
        end
        if r == 0 then
            local entry = call('XADD', K.s[si], '*', 'j', id .. when .. blob, 'f', args[i + 1])
            local n = #stubs
            stubs[n + 1] = id
            stubs[n + 2] = si .. ' ' .. entry .. when .. (deadline or '0') .. note
            jobs, bytes = jobs + 1, bytes + cost
            if byte(note) == 32 then -- its inputs lie in a segment, the same one as a rule
                if note ~= seg_note then
                    local own = match(note, '^ (%x+)')
                    if own ~= seg then
                        if seg_jobs > 0 then refer(seg, seg_jobs) end
                        seg, seg_jobs = own, 0
                    end
                    seg_note = note
                end
                seg_jobs = seg_jobs + 1
            end
            if deadline then call('ZADD', K.deadlines, deadline, id) end
            if idem then call('SET', idem, id .. ' ' .. fingerprint, 'EX', L.ttl.a) end
            local class = CLASS_OF[si]
            count[class], streams[si] = count[class] + 1, true
        end
        reply[#reply + 1] = r == -1 and 0 or r
    end
    if seg_jobs > 0 then refer(seg, seg_jobs) end
    call_many('HSET', K.pending, stubs)
    if bytes ~= before then call('INCRBY', K.bytes, whole(bytes - before)) end
    local new = count[1] + count[2] + count[3]
    if new > 0 then
        local all = jobs == new and {jobs = jobs, bytes = bytes, streams = streams} or nil
        wake(count[1], count[2], count[3], new, all)
    end
    reply[2], reply[3] = jobs, bytes
    return reply
end

local function look(args, from, each)
    local reply, finder = {}, running_finder(#args - from + 1)
    for i, stub in ipairs(get_many(K.pending, args, from)) do
        local id = args[from + i - 1]
        if stub then
            if each then stub = each(id, stub) end
            reply[i] = terse(id, parse(stub), nil, nil, finder)
        else
            reply[i] = recorded(id) or unknown(id)
        end
    end
    return reply
end

local function get(keys, args)
    start(keys, args)
    return look(args, 2)
end

local function watch(keys, args)
    start(keys, args)
    return look(args, 3, function(id, stub) return stub_watch(id, stub, args[2], true) end)
end

local function unwatch(keys, args)
    start(keys, args)
    for i, stub in ipairs(get_many(K.pending, args, 3)) do
        if stub then stub_watch(args[2 + i], stub, args[2], false) end
    end
    return 0
end

-- Deletes the record of an ended job.
local function forget(id, record)
    local bucket = bucket_of(id)
    local blob = tonumber(call('HGET', K.out_of .. bucket, id) or 0)
    local bytes = whole(-(PIECE_HEAD + #record + blob + RECORD_OVERHEAD))
    call('HDEL', K.rec_of .. bucket, id)
    call('HDEL', K.out_of .. bucket, id)
    call('HINCRBY', K.recbytes, bucket, bytes)
    call('HINCRBY', K.recbytes, 'total', bytes)
end

local function cancel(keys, args)
    start(keys, args)
    local reply, e, finder = {}, ending_new(), running_finder(#args - 1)
    local seen = {}
    for i, stub in ipairs(get_many(K.pending, args, 2)) do
        local id = args[1 + i]
        if seen[id] then
            reply[i] = 404
        elseif stub then
            local job = parse(stub)
            reply[i] = ending_add_terse(e, id, job, 'cancelled', 'cancelled', finder)
        else
            local record = recorded(id)
            if record then forget(id, record) end
            reply[i] = record or unknown(id)
        end
        seen[id] = true
    end
    ending_commit(e)
    return reply
end

local LIST_BYTES = 8388608

-- Up to about `want` pairs of a hash, as a flat list; which ones is chance where there are more.
local function sample(key, want)
    local pairs_, cursor = {}, '0'
    repeat
        local r = call('HSCAN', key, cursor, 'COUNT', min(want, 1000))
        cursor = r[1]
        for _, value in ipairs(r[2]) do pairs_[#pairs_ + 1] = value end
    until cursor == '0' or #pairs_ >= 2 * want
    return pairs_
end

-- Appends the records of the newest rows; a row is {time, record} or, of a pending job, {time, id,
-- job}. Returns the bytes listed so far.
local function newest_first(rows, limit, reply, bytes, finder)
    table.sort(rows, function(a, b) return a[1] > b[1] end)
    for i = 1, min(limit, #rows) do
        local row = rows[i]
        local record = row[3] and terse(row[2], row[3], nil, nil, finder) or row[2]
        bytes = bytes + #record
        if bytes > LIST_BYTES then break end
        reply[#reply + 1] = record
    end
    return bytes
end

local function list_pending(which, limit, reply)
    local running, rows, finder = {}, {}, running_finder(1000)
    for _, name in ipairs(call('HKEYS', K.workers)) do
        for line in gmatch(call('GET', K.run_of .. name) or '', '[^\n]+') do
            for id in gmatch(match(line, '^%d+(.*)$') or '', '%S+') do running[id] = true end
        end
    end
    if which ~= 'queued' then
        local ids = {}
        for id in pairs(running) do ids[#ids + 1] = id end
        for i, stub in ipairs(get_many(K.pending, ids)) do
            if stub then
                local job = parse(stub)
                rows[#rows + 1] = {tonumber(job.us), ids[i], job}
            end
        end
    end
    local bytes = newest_first(rows, limit, reply, 0, finder)
    if which == 'running' then return bytes end
    rows = {}
    local some = sample(K.pending, 4 * limit)
    for i = 1, #some, 2 do
        if not running[some[i]] then
            local id, job = some[i], parse(some[i + 1])
            rows[#rows + 1] = {tonumber(job.us), id, job}
        end
    end
    return newest_first(rows, limit, reply, bytes, finder)
end

-- Whether `limit` rows are as new as `second`.
local function enough(rows, limit, second)
    if #rows < limit then return false end
    local n = 0
    for _, row in ipairs(rows) do
        if row[1] >= second then n = n + 1 end
    end
    return n >= limit
end

local function list_ended(limit, reply, bytes)
    local order, rows, size = {}, {}, 0
    for _, bucket in ipairs(call('ZRANGE', K.recs, 0, -1)) do
        local kind, b = match(bucket, '^(%a):(%d+)$')
        order[#order + 1] = {(tonumber(b) + 1) * WIDTH[kind], bucket} -- all in it are older
    end
    table.sort(order, function(a, b) return a[1] > b[1] end)
    for _, pair in ipairs(order) do
        if size > 2 * LIST_BYTES or enough(rows, limit, pair[1]) then break end
        local some = sample(K.rec_of .. pair[2], limit)
        for i = 1, #some, 2 do
            rows[#rows + 1] = {tonumber(sub(some[i], 2, 9), 16), sub(some[i + 1], PIECE_HEAD + 1)}
            size = size + #some[i + 1]
        end
    end
    newest_first(rows, limit, reply, bytes)
end

local function list(keys, args)
    start(keys, args)
    local which, limit, reply, bytes = args[2], min(tonumber(args[3]), 10000), {}, 0
    if which ~= 'ended' then bytes = list_pending(which, limit, reply) end
    if which == 'ended' or which == 'any' then list_ended(limit, reply, bytes) end
    return reply
end

-- How many pending jobs of each SI the text of a worker names; the second result is their sum.
local function count_named(text, pattern, counts)
    local ids, sum = {}, 0
    for line in gmatch(text or '', '[^\n]+') do
        for id in gmatch(match(line, pattern) or '', '%S+') do ids[#ids + 1] = id end
    end
    for _, stub in ipairs(get_many(K.pending, ids)) do
        if stub then
            local si = sub(stub, 1, 1)
            counts[si] = (counts[si] or 0) + 1
            sum = sum + 1
        end
    end
    return sum
end

local function stats(keys, args)
    start(keys, args)
    local infos, claimed, running, workers = {}, {}, 0, call('HGETALL', K.workers)
    for i = 1, #workers, 2 do
        local name = workers[i]
        if call('EXISTS', K.lease_of .. name) == 1 then
            infos[#infos + 1] = cjson.encode(name) .. ':' .. match(workers[i + 1], '^%S+ %S+ (.*)$')
        end
        count_named(call('GET', K.held_of .. name), '^(.*)$', claimed)
        running = running + count_named(call('GET', K.run_of .. name), '^%d+(.*)$', {})
    end
    local parts = {}
    for c, class in ipairs(CLASSES) do
        local rows = {}
        for p, priority in ipairs(PRIORITIES) do
            local si = tostring((c - 1) * 3 + p)
            local held = claimed[si] or 0
            rows[p] = format('"%s":{"queued":%d,"claimed":%d}', priority,
                             max(call('XLEN', K.s[si]) - held, 0), held)
        end
        parts[c] = format('"%s":{%s}', class, concat(rows, ','))
    end
    return format('{"workers":{%s},"queue":{"jobs":%d,"bytes":%s,"running":%d,' ..
                  '"records_bytes":%s,%s}}',
                  concat(infos, ','), call('HLEN', K.pending), call('GET', K.bytes) or '0', running,
                  call('HGET', K.recbytes, 'total') or '0', concat(parts, ','))
end

local function refs(keys, args)
    start(keys, args)
    local digits = {}
    for i = 2, #args do
        local id, kind = match(args[i], '^([sa]?%x+)%.(%a+)$')
        local bucket = id and #id == 41 and bucket_of(id)
        local yes = kind == 'seg' and call('HEXISTS', K.refs, id) == 1 or
                    bucket and (call('HEXISTS', K.pending, id) == 1 or
                                (kind == 'out' and call('HEXISTS', K.out_of .. bucket, id) == 1) or
                                call('EXISTS', K.hold_of .. args[i]) == 1)
        digits[#digits + 1] = yes and '1' or '0'
    end
    return concat(digits)
end

local function tick(keys, args)
    start(keys, args)
    return housekeeping()
end

local function blob(keys, args)
    start(keys, args)
    call('HSET', K.blobs, args[2], args[3])
    call('SET', K.hold_of .. args[2], '1', 'EX', 120)
    return 0
end

local PIECE = 1048576

local function blob_drop(keys, args)
    start(keys, args)
    for i = 2, #args do
        local bytes = tonumber(call('HGET', K.blobs, args[i]) or 0)
        for piece = 0, floor(max(bytes - 1, 0) / PIECE) do
            call('UNLINK', K.blob_of .. args[i] .. ':' .. piece)
        end
        call('HDEL', K.blobs, args[i])
        call('DEL', K.hold_of .. args[i])
    end
    return 0
end

-- Workers

local function info_ok(info)
    local ok, value = pcall(cjson.decode, info)
    return ok and type(value) == 'table'
end

local function register(keys, args)
    start(keys, args)
    local name, class, info, identity = args[2], args[3], args[4], args[5]
    if not info_ok(info) then return redis.error_reply('ERR register: INFO is no JSON object') end
    call('SETNX', K.store, identity)
    local store = call('GET', K.store)
    if store ~= identity then return redis.error_reply('STORE ' .. store) end
    make_groups()
    recover(name)
    local epoch = call('INCR', K.epoch)
    call('SET', K.lease_of .. name, epoch, 'PX', L.lease_ms)
    call('HSET', K.workers, name, class .. ' ' .. epoch .. ' ' .. info)
    return {now, epoch}
end

local function renew(keys, args)
    start(keys, args)
    local name, epoch, info = args[2], args[3], args[4]
    local lost = lapsed(name, epoch)
    if lost then
        housekeeping()
        return lost
    end
    call('PEXPIRE', K.lease_of .. name, L.lease_ms)
    local was = call('HGET', K.workers, name) or '0'
    local is = sub(was, 1, 1) .. ' ' .. epoch .. ' ' .. info
    if is ~= was and info_ok(info) then call('HSET', K.workers, name, is) end
    return housekeeping()
end

local function release(keys, args)
    start(keys, args)
    local lost = lapsed(args[2], args[3])
    if lost then return lost end
    recover(args[2])
    return 0
end

local function bury(keys, args)
    start(keys, args)
    recover(args[2])
    return 0
end

-- Jobs the worker does not know that it holds, because a reply to it was lost, go back.
local function claim_check(name, held)
    local ids = {}
    for id in gmatch(call('GET', K.held_of .. name) or '', '%S+') do
        if not find(held, id, 1, true) then ids[#ids + 1] = id end
    end
    for _, stub in ipairs(get_many(K.pending, ids)) do
        if stub then redo(parse(stub)) end
    end
    call('SET', K.held_of .. name, held)
end

-- What was handed to a worker that had stopped waiting, as claim gives it; it is the worker's.
local function claim_handed(name)
    local handed, reply, at = call('LRANGE', K.wake_of .. name, 0, -1), {now}, 1
    while handed[at] == '1' do at = at + 1 end
    for i = at + 1, #handed - 1, 2 do
        if handed[i] == '1' then break end
        reply[#reply + 1], reply[#reply + 2] = handed[i], handed[i + 1]
    end
    call('DEL', K.wake_of .. name)
    return #reply > 1 and reply or nil
end

local function claim(keys, args)
    start(keys, args)
    local name, class, turn, held = args[2], tonumber(args[4]), tonumber(args[7]), args[10]
    local lost = lapsed(name, args[3])
    if lost then return lost end
    if args[8] == '1' then
        call('HDEL', K.idle, name)
        -- where a reply was missed they may have been in it: then the check below gives them back
        local reply = claim_handed(name)
        if reply and args[9] ~= '1' then return reply end
    end
    if args[9] == '1' then claim_check(name, held) end
    expire_due()
    local c = claim_take(name, class, tonumber(args[5]), tonumber(args[6]), turn, held)
    if c.count == 0 then
        call('HSET', K.idle, name, concat({args[4], args[5], args[6], args[7], held}, ' '))
        call('DEL', K.wake_of .. name)
    end
    return c.reply
end

local function begin(keys, args)
    prepare(keys, args)
    local lost = lapsed(args[2], args[3])
    if lost then return lost end
    call('SET', K.run_of .. args[2], args[4])
    return 0
end

local function finish(keys, args)
    start(keys, args)
    local name, resent, asked, n = args[2], sub(args[4], 1, 1) == '1', sub(args[4], 3), #args
    local lost = lapsed(name, args[3])
    if lost then return lost end
    if n % 3 ~= 1 then return redis.error_reply('ERR finish takes three arguments for each job') end
    local ids, count = {}, 0
    for i = 5, n, 3 do
        count = count + 1
        ids[count] = args[i]
    end
    local e, digits, seen, finder = ending_new(), {}, {}, running_finder(1)
    local stubs = get_many(K.pending, ids)
    for i = 1, count do
        local id, stub, digit = ids[i], stubs[i], '0'
        if stub and not seen[id] then
            seen[id] = true
            local si, entry, cost, deadline, seg, channels = split(stub)
            if not si then
                si, entry, cost, deadline, seg, channels = '2', '0-1', 0, '0', '', ''
            end
            if deadline ~= '0' and tonumber(deadline) <= now then
                ending_add_terse(e, id, parse(stub), 'expired', 'deadline_exceeded', finder)
            else
                local outputs, out_bytes, out_seg = args[4 + 3 * i], 0, ''
                if outputs ~= '0' then
                    out_bytes, out_seg = match(outputs, '^(%d+) ?(%x*)$')
                    out_bytes = tonumber(out_bytes)
                end
                ending_add(e, id, si, entry, cost, seg, channels, args[3 + 3 * i], out_bytes,
                           out_seg)
                digit = '1'
            end
        elseif resent then
            local _, piece = recorded(id)
            if piece == args[3 + 3 * i] then digit = '1' end
        end
        digits[i] = digit
    end
    local left = ending_commit(e, name)
    if asked ~= '' and left == 0 and call('HLEN', K.pending) == 0 then
        call('HSET', K.idle, name, asked)
        digits[count + 1] = 'i'
    end
    return concat(digits)
end

local function progress(keys, args)
    start(keys, args)
    local lost = lapsed(args[2], args[3])
    if lost then return lost end
    if not tonumber(args[4]) then return redis.error_reply('ERR progress: no number') end
    local digits, fields = {}, {}
    for i, stub in ipairs(get_many(K.pending, args, 5)) do
        digits[i] = stub and '1' or '0'
        if stub then fields[#fields + 1], fields[#fields + 2] = args[4 + i], args[4] end
    end
    call_many('HSET', K.prog_of .. args[2], fields)
    return concat(digits)
end

-- A Redis that is out of memory still lets jobs end, which is how it gets memory back.
local function add(name, callback, flags)
    redis.register_function({function_name = 'blasd_1_' .. name, callback = callback,
                             flags = flags})
end
add('open', open, {})
add('submit', submit, {})
add('blob', blob, {})
add('watch', watch, {'allow-oom'})
add('unwatch', unwatch, {'allow-oom'})
add('cancel', cancel, {'allow-oom'})
add('tick', tick, {'allow-oom'})
add('blob_drop', blob_drop, {'allow-oom'})
add('register', register, {'allow-oom'})
add('renew', renew, {'allow-oom'})
add('release', release, {'allow-oom'})
add('bury', bury, {'allow-oom'})
add('claim', claim, {'allow-oom'})
add('begin', begin, {'allow-oom'})
add('finish', finish, {'allow-oom'})
add('progress', progress, {'allow-oom'})
add('get', get, {'no-writes'})
add('list', list, {'no-writes'})
add('stats', stats, {'no-writes'})
add('refs', refs, {'no-writes'})

#!lua name=blasd_7
-- revision 15
-- workers call blob_free blob_write lease note open refs register turn
-- workers send BLMPOP EXISTS EXPIRE FUNCTION|LIST GET HSCAN HSET PEXPIRE RPUSH SELECT SET TIME
--[[ The queue inside Redis: what its keys are and what each function does.

The library's name ends in the schema number of everything stored here; wire/frame.h says what
frames and records hold, which are only bytes here. Every function is atomic, and its effects enter
the append-only file as one transaction, so a replay never shows half of one. Who calls:
worker_turn.c and front_submit.c; redis/redis_link.c loads these files as one text, in
the order that the Makefile gives. Read next: state.lua.

KEYS. KEYS[1] of every call is "{NAME}", the hash tag of the queue, written {q} below; no key of
that very name exists. All others begin with it, so they lie in one slot of a cluster.
  {q}:wait:CLASS:PRIO:[LANE:]TENANT
                       list of names, CLASS any|cpu|cuda, PRIO high|normal|low, LANE brief|long, see LANES:
                       what of that tenant no worker has been given, the first one first; what is given back stands at its
                       head. A job that ends meanwhile leaves its name there, a tombstone, which claims
                       pass over. Below it is called a line, by "SI TENANT"
  {q}:pending          hash NAME -> meta, exactly while the job, or batch entry, waits, is queued or running;
                       whoever removes it ends the job, so a job ends once. The meta is
                       "SI US COST FLAGS DEADLINE[ SEG][ pTIME][ wWEIGHT][ rRESULT][ nATTEMPTS][ xN]\t
                       CHANNEL[,CHANNEL...]\tOP[ LABELS]\tTENANT[\tUSES\tKEY]", in one line
                       SI = 1 + 3 x class + priority, by the order of the enums (any high = 1, ...,
                       cuda low = 9), then a to i of brief jobs, and j to r of long ones; US when it was submitted, in us on Redis' clock; COST in
                       bytes, of each job; FLAGS 1 if its inputs are the blob ID.in, plus 2 if it is
                       of kind s and its end was promised for later, see watch; DEADLINE in us, 0:
                       none; SEG: the segment its inputs lie in; TIME: predicted for each job, in
                       us; WEIGHT: by which that is divided where its tenant's share counts, of
                       a tenant that is metered;
                       RESULT: bytes that each job's record is expected to take, reserved until it ends;
                       ATTEMPTS: workers that began the job and did not end it; N: jobs of a batch
                       entry; LABELS: see core/labels.h; USES: "[BLOB,BLOB...][ BYTES TENSORS][ URL]",
                       to what it refers, also to a small tensor that it has a copy of, what
                       tensors it will make, and where its end is to be told; KEY: its Idempotency-Key
  {q}:names:TENANT     set of the names of {q}:pending that are that tenant's, for its lists; none of
                       `anonymous`, who is alone
  {q}:opened           hash BATCH_ENTRY -> "US ID ID ...", of batch entries that were opened, in US, while
                       jobs of them are pending
  {q}:state            hash: what each call reads when it starts and writes when it ends.
                       `numbers`: doubles, little-endian, one behind the other (state.lua):
                       jobs and bytes (of their costs) pending, and results, of their RESULTs;
                       waits1 to waits3: jobs that wait, of each class; clock and offset: the time
                       of the last tick, by about a second, and how far Redis' clock is behind it;
                       shared: when last those of several tenants waited; watched: until when
                       {q}:events is heard; alone2, alone3: since when jobs of that class wait
                       without a worker of it; kept_s, kept_a: bytes of all records of a kind;
                       swept: the last second whose records are not counted any more; goes: the last
                       one of which any are; gap, resume: after the second gap none goes until after
                       resume, as the clock had jumped, 0 without; gone: the second until which
                       records of kind s may have gone before their time; ended: when the last record
                       came; due, due_bytes: bytes of `s anonymous` that {q}:goes:due lacks yet.
                       `refused`: "UNTIL WHY" while no job is to be taken, which `blasd up` writes
                       while the disk has too little space; `epoch`: counter of leases; `idkey`: what
                       ids are signed with (base/id.h); `notifier`: "NAME UNTIL", the process that
                       delivers webhooks; `idle`: lines
                       "WORKER THREAD SEQ CLASS MAX ROOM", the demand of each turn that was not met;
                       `t:WORKER:THREAD`: "SEQ GIVEN DIGITS", the last turn of that thread, its turns
                       since the queue was empty, and how the jobs it ended then had ended;
                       `s:FRONT`: "SEQ REFUSED SECOND", the last of that front end's calls of submit,
                       the last one in which not all was queued, and when it was; "OP submitted":
                       jobs taken in, "OP STATE" and "OP failed CODE": jobs that ended so, since the
                       queue was made
  {q}:lines            hash "SI TENANT" -> jobs waiting in
                       that line: those above 0 are the ring from which claims take
  {q}:used             hash "jobs TENANT", "bytes TENANT", "results TENANT": the same of each tenant that is metered
  {q}:shares           hash "C-P TENANT" -> WORK that workers of class C (1 cpu, 2 cuda) were given of
                       that tenant's and of priority P (1 to 3) while others' waited, too: TIME by WEIGHT,
                       or what it then took; and "C-P" ->
                       the least of those that wait. No fields while one tenant alone waits
  {q}:deadlines        zset ID -> DEADLINE, only of pending jobs that have one
  {q}:record:NAME      with an expiry: "TENANT KIND GOES BYTES OUT KEYBYTES\n", an Idempotency-Key of so many bytes,
                       and the RECORD_FRAME with the final record, or those of a batch entry whose jobs
                       ended together. KIND s|a is that of the id; of a promised job it is a in any
                       case. GOES: the second in which it goes; BYTES that are counted for it, OUT of
                       them in the blob ID.out
  {q}:index:KIND:TENANT  zset NAME -> when it ended, in us, no two the same: the tenant's records, for its lists
  {q}:goes:SECOND      hash "KIND TENANT" -> bytes of its records that go in that second; `out`: how many of
                       these records have a blob
  {q}:kept             hash "KIND TENANT" -> bytes of its records, their blobs and keys, but of `anonymous`.
                       Those of kind a stay for their time: where they are as many as may be
                       (record_bytes), jobs are refused, and room for those of pending jobs is reserved.
                       Those of kind s stay the shorter the less room for them (record_sync_bytes) there is
  {q}:refs             hash SEG -> references to the segment SEG: pending jobs whose inputs lie in
                       it; BLOB (ID.in of a tensor, ID.out of a job
                       that has ended) -> pending jobs that refer to it; no field means none
  {q}:segments         hash SEG -> "COUNT GOES": records whose outputs lie in it, and the second in which the
                       last of them goes
  {q}:left             hash BLOB -> "BYTES TENANT[ KIND GOES]": what pending jobs refer to, and is kept for them: a
                       tensor that was dropped, which counts in {q}:tensor_bytes; an output, which counts with
                       KIND in {q}:kept, until its record goes in that second, and then until none does
  {q}:tensors          hash ID -> "BYTES LIFE CREATED TENANT FORM": the tensors that are kept; their
                       bytes are the blob ID.in. LIFE in seconds from the last use; CREATED in us;
                       FORM tells dtype, order and shape (core/reference.h), and behind that
                       " sha256=SUM" where it was asked for. ID begins with t
  {q}:tensor_uses:TENANT  zset ID -> when it was last used, in us, of that tenant's that no pending job refers
                       to: the order in which they make room
  {q}:tensor_names:TENANT zset of that tenant's, CREATED and ID as one text, all of score 0, for its
                       lists; ID alone of one that an earlier release put
  {q}:tensor_ends      zset ID -> second in which its life ends, of the same
  {q}:tensor_copies    hash ID -> "US WORKER DEVICE<tab>...": that device has a copy of the tensor, as its worker
                       said until US
  {q}:tensor_bytes     hash TENANT -> bytes of its tensors, ":" -> of all, both with those that pending jobs will
                       make; "#TENANT" and "#:" -> how many; "idle TENANT" -> bytes of those that may make room
  {q}:workers          hash NAME -> "CLASS EPOCH INFO" (CLASS 1 cpu, 2 cuda; INFO a JSON object)
  {q}:claims:NAME      hash of what the worker holds, by its threads THREAD 0
                       to 9 (0 claims; others end what it has claimed): name of a job or batch entry ->
                       "THREAD SEQ", the turn it was given in; some may have ended; ! -> "EPOCH TILL",
                       the worker lives exactly until then, in us; %ID -> "PROGRESS[ US]" of running
                       jobs, 0..1, and when they will have ended, as far as it can tell, and % where
                       there may be any; $ -> SEQ of the turn in answer to which jobs were handed over
                       last; @THREAD -> EPOCH, a newline, and a
                       line for each batch that has begun, "US ID BATCH_ENTRY ...", as the worker itself
                       writes with HSET: it counts as long as its epoch is that of {q}:workers, and
                       what has ended may stand in it
  {q}:figures:NAME     with an expiry: a JSON object of what the worker has counted, as it writes it
                       itself with SET about once a second (worker/phases.h)
  {q}:wake:NAME        list at which the worker waits, with BLMPOP: the reply to that turn, without
                       digits and now_us as a text, once there are jobs: these are its already
  {q}:sent:FRONT:SEQ   the reply of that call of submit, where not all was queued, with an expiry
  {q}:idem:TENANT:KEY  "ID FINGERPRINT": the Idempotency-Keys in use, once the job has ended with an expiry, of
                       as long as its record is to stay, whatever becomes of that. TENANT has no colon: letters, digits, `.`, `_`, `-`
  {q}:unlogged         list of "ID OP STATE CODE TENANT": the newest jobs that were ended here, not by a
                       worker or a request, for the next front end to log; of a job with a trace then a
                       newline, id 16, span 8, sampled 1, and its record, also of one that a request
                       has cancelled, where that is sampled
  {q}:ended            stream of {id ID, tenant, op, labels, state, code, device, device_us, energy_joules,
                       flops, bytes, created_us, finished_us}: jobs that have ended, about the last of them as
                       many as the limit ended_jobs says; none where that is 0
  {q}:hooks            stream of {tenant, url, id, record}: the ends that are to be told there, until that is
                       delivered or given up; the record ends before its outputs' bytes
  {q}:hook_counts      hash LANE, TENANT, and "*" for all -> how many of it pending jobs and {q}:hooks have
  {q}:limits           LIMITS of the first that came, which hold for all
  {q}:schema           number of the schema: a process of another one is refused, "SCHEMA NUMBER";
                       a queue with a store and without a number is of schema 5
  {q}:store            identity of the deployment's blob store
  {q}:blobs            hash BLOB -> bytes: blobs of the store kind `redis`
  {q}:blob:BLOB:N      their bytes in chunks of 1 MiB (N = 0, 1, ...; the last one is shorter)
  {q}:hold:BLOB        with an expiry: such a blob is being written, so it must not be swept
  {q}:here:FRONT       with an expiry: written by each front end, which sees so that Redis takes
                       writes and was not emptied
  {q}:sweeping         with an expiry: somebody has swept the store this period
  {q}:sweeping:at_work the same, of the sweeps that follow while jobs end

BATCH_ENTRIES. Small jobs of one call of submit that can run as one, and have the same meta but for their
ids, are one entry of the queue. Its name, BATCH_ENTRY, is what their ids begin with (base/id.h: 29
characters of 41), and it is given to a worker, begins and, as a rule, ends as a whole. Where one of
its jobs is dealt with alone (cancelled, watched by another channel, ended before the others, given
back by a worker that had begun it), the batch entry is opened: its jobs are entries of their own from
then on, and whoever comes upon its name, in a list or among what a worker held, takes them for it.
So each pending job is named in one place, by its id or by its batch entry's name: NAME is either.

LANES. A job's TIME says in which lane it waits: quick, brief from 8 ms on, or long from 1 s on. A worker says
how much of each it would begin soon, and is given no more: a line of long jobs holds up no others, and what
no worker has room for is there for the next one that comes.

SHARES. Where lines of one tenant wait, jobs are given in their order, by priority. Where those of
several do, each priority is shared out by TIME and WEIGHT: whoever was given least is next, and one that comes
anew starts where the least of them stands. Then, and some seconds longer, a claim is small, so that a
worker comes again soon. When a job has ended its TIME is replaced by what it took.

FUNCTIONS. Called as FCALL blasd_7_<name> 1 {q} LIMITS ... . LIMITS, the first argument of all, is
the text that blasd_link_limits makes: "attempts record_bytes record_sync_s record_async_s
queue_jobs queue_bytes lease_ms record_sync_bytes tensor_bytes tensors tensor_life_s ended_jobs". Times are microseconds on Redis' clock, as
integers; where that goes back they go on from where they were, at half the speed until it has come there. A RECORD in a reply is a final record as it was given to finish, or one that was made
here (records.lua), of a job that is queued or running or that no worker ended; both are of one form.
Where a job is unknown the reply holds an integer in the record's place: 404 there never was such a
job, or it was deleted, or it is another tenant's; 410 its record has expired. TENANT is who asks; of
another's jobs the reply and what is done for it are those of jobs that never were.

Front ends call
  open IDENTITY REPLACE
      -> the identity recorded (IDENTITY itself where it was the first, or REPLACE is 1). To be
      called on each new connection before anything else
  submit FRONT SEQ, then 6 for each job, or batch entry: NAME FRAME SI COST OPTIONS NOTE
      -> {now_us, jobs, bytes, r1, ...} with jobs and bytes pending after it; error "DISK WHY", and
      nothing is taken, while `refused` of {q}:state says why; not of a call that was taken before. Without jobs it tells whether any would be
      taken. A front end numbers its calls in the order in which it sends them; one whose reply was
      lost is sent again as it was, with the same SEQ and before any later one, and is answered as
      it was. COST may have " rRESULT" behind it, and of a batch entry is that of each job, and how many they are, "COST N[ rRESULT]"; its FRAME is record frames;
      of OPTIONS it has t= at the most, the same for all its jobs.
      OPTIONS: "" or words joined by one space, k= the last, each optional: d=DEADLINE_MS; b=1 (the
      inputs are the blob ID.in); B=1 (the same, in a store of kind redis: checked to be there);
      t=BLOB,BLOB... (what its inputs refer to: tensors' ID.in, jobs' ID.out); m=MOST:BYTES:TENSORS (what
      it will make of tensors, of which the tenant's may come to MOST bytes); n=MOST:URL (its end is told there, of
      MOST that may wait in all, three quarters of one tenant, and a tenth for one LANE);
      o=1 (nothing is queued: it asks for the job that KEY names);
      k=FINGERPRINT:KEY (to the end of the text; KEY may hold any byte, FINGERPRINT no colon).
      NOTE: "[ SEG]\tCHANNEL\tOP[ LABELS]\tTENANT[\tTIME[ WEIGHT JOBS BYTES STORED] ]", CHANNEL "" where nobody waits;
      SI is that of a quick job. A tenant with WEIGHT is metered: JOBS and BYTES (of costs) it may have pending, STORED bytes of
      records beyond which it gets no more jobs in; 0: as many as there is room for.
      r: integer 0 queued; 1 full (by count or bytes); 2 the key was used for another request; 3 the
      blob ID.in is not there; 4 NAME, SI, COST or NOTE is malformed; 5 results that are kept leave
      no room for more; 6, 7, 8 JOBS, BYTES, STORED are reached; 9 what it refers to is gone; 10 MOST is reached;
      13 o=1, and KEY names none; 14 the job of KEY has ended, and its record is gone; 15 tensors leave no room for those it makes, 16 they are
      more than may be; or, where the key was used for the same request, an array {ID of the
      earlier job, its RECORD where it has ended and a CHANNEL was given, else ""}; where it has not
      ended, CHANNEL now watches it; or, of a batch entry for which there is not room as a whole, a text
      with one of these digits for each job
  get TENANT ID...            -> {RECORD or 404|410, ...}
  watch TENANT CHANNEL ID...
      -> as get; CHANNEL is told when those that have not ended end. With CHANNEL "" their ends are
      kept as long as those of kind a: to be called before an answer says that the end can be
      fetched later
  cancel TENANT FORGET ID...
      -> {RECORD or 404|409|410, ...}: a pending job ends as cancelled; one that has ended is, where
      FORGET is 1, forgotten, and the record is what it was, else 409. Where there is a record the
      caller removes the blobs ID.in and ID.out; not where it is {RECORD}: another job refers to
      them, and the sweep will
  list TENANT WHICH OP SINCE BEFORE LIMIT CURSOR [LABEL]
      -> {CURSOR, RECORD, ...}, or 400 where CURSOR is none: a page of its jobs of the state WHICH
      or, any, of all; of the operation OP unless that is "";
      with the label LABEL, "NAME=VALUE" or, of any value, "NAME", unless that is ""; made from SINCE
      on and before BEFORE, in us; 100 at the most. CURSOR "" begins, and ends. First what is pending, then records, those
      that ended last first; of what is pending within a step (see listing.lua) newest first. What is there from
      the first page to the last comes once or more often
  stats [MORE] [TENANT]
      -> JSON text {"totals":{FIELD:JOBS,...},"workers":{NAME:INFO,...},"queue":{"jobs":...,
      "bytes":...,"running":...,"records_bytes":...,"any":{"high":{"queued":...,"claimed":...},...},"cpu":...,"cuda":...},"tensors":{"count":...,"bytes":...},"webhooks":how many wait}
      MORE, `figures` or `tenants`: with "figures":{NAME:{q}:figures:NAME,...}, and "oldest_us" beside
      "queued" where jobs wait; `tenants`: with "tenants":{TENANT:{"waiting":...,"jobs":...,
      "bytes":...,"results_bytes":...},...}, too. TENANT: with "own":{"any":...,"cpu":...,"cuda":...}, how many
      of the jobs that are queued or claimed are that one's; MORE is then "" where it is not wanted
  refs BLOB...
      -> text of one digit for each: 1 referred to (ID.in while the job is pending; ID.out while it
      is pending or its record lives; both while on hold; SEG.seg while it has references), 0 not
  tick [IDKEY] [HEARS]
      -> {now_us, jobs, bytes, cpu workers, cuda workers, blobs set free (> 0: worth a sweep), next
      deadline or 0, bytes of results that are kept, `idkey`, which is IDKEY where there was none,
      {line of {q}:unlogged, ...}, {q}:limits}: housekeeping that anyone may do: passed deadlines, lapsed leases, expired
      records. Each front end calls it about once a second, and may at the next deadline; HEARS 1: it hears
      {q}:events
  blob hold BLOB BYTES
      -> 1 where it was not noted before, else 0: notes a blob of kind redis and puts it on hold for two
      minutes. Call it before the chunks are SET, each minute meanwhile, and after them: 1 says then that
      what was there has been swept, for the clock has leapt, or Redis was emptied
  blob drop BLOB...       -> 0: removes blobs of kind redis, but what is referred to; being on hold is no matter
  tensor put TENANT MOST LIFE, then 3 for each: ID BYTES FORM
      -> {CODE, now_us}: keeps these, whose blobs are there; the tenant's others make room, the one first that
      was not used for longest, but what pending jobs refer to. MOST: bytes that the tenant's may come
      to, 0: as all; else it has three quarters of the number, too. LIFE may have " B" behind it: the blobs are
      of kind redis, and checked to be there. CODE 0; nothing is kept: 1 they are more than all may be, 2
      than its own, 3 what is in use, or others', leaves no room, 4 a blob is not there; 5 some have made room, and the same
      call is to be sent again, for others have to
  tensor get TENANT USE ID...
      -> {FACTS or 404, ...}; with USE 1 their lives begin anew. FACTS: "BYTES LIFE CREATED USED ENDS
      FORM", USED in us, ENDS a second; behind a tab the device that has a copy, where one does
  tensor life TENANT ID LIFE  -> {FACTS or 404}, as it then is
  tensor drop TENANT ID
      -> {FACTS, FREE} or {404}: forgets it; FREE 1: the caller removes the blob
  tensor list TENANT LIMIT CURSOR
      -> {CURSOR, ID, FACTS, ...}: a page, newest first. CURSOR "" begins, and ends

Who delivers webhooks calls
  webhook lease NAME MS
      -> {OWN, now_us}: OWN 0: another process has the lease; 1: this one has it for so long; 2: the same, and had it not
      before. It reads {q}:hooks by itself. MS 0: gives it back
  webhook done ENTRY OUTCOME
      -> 0. OUTCOME: `delivered`, `given_up`, or `failed`, which alone leaves the entry there

Workers call (all that carry NAME EPOCH answer with the error "LOST ...", and do nothing, where the
lease is not theirs any more)
  register NAME CLASS INFO IDENTITY
      -> {now_us, EPOCH}; error "STORE ..." where the identity recorded is another
  lease NAME EPOCH renew INFO   -> as tick, which it includes, without lines
  lease NAME EPOCH release      -> 0: gives back what it held, and the name
  blob_free BLOB...       -> 0: as blob drop, but what is on hold stays, unless it is outputs
  blob_write NAME EPOCH BLOB BYTES N DATA
      -> 0: notes a blob of kind redis of BYTES, puts it on hold for two minutes and writes its chunk N
  turn NAME EPOCH THREAD SEQ CLASS MAX ROOM LEADS, then 3 for each COMPLETION: NAME RECORD_FRAMES OUTPUTS
      -> {now_us, DIGITS, j1, f1, j2, f2, ...}, "now_us watched" while
      somebody hears {q}:events. The one exchange by which a worker ends jobs and
      comes by others. DIGITS: 1 for each job that has ended so, 0 for one that had ended otherwise, or that
      another worker holds.
      j = "NAME US COST BLOB", with " ATTEMPTS" behind it where workers began the job before and did
      not end it, of a batch entry " 0 N", and then "\tTENANT" where that is metered; f its frame, of a
      batch entry its N record frames.
      MAX counts jobs; 0: it wants none. ROOM: "BYTES[ US US US]", with how much TIME of each lane it wants:
      of long ones then one at the most. Where it wants some and there are none the worker is idle:
      it waits in BLMPOP {q}:wake:NAME, where the same reply comes once there are; "1" there: it is to
      ask again. LEADS 1, or 3: that wait comes behind this call, so if there were such jobs "1" is in the
      list, which ends it. LEADS 2, or 3: the reply to its last turn came in the list; else what is there is
      nothing to the worker any more.
      SEQ is greater than in the thread's last turn. A turn whose reply was lost, in that list or on
      its way, is sent again with the same SEQ, and COMPLETIONS: what has been done is not done again,
      and the reply is made anew from what the worker was given in it; where that is nothing, what
      it asks for now counts. An older SEQ is refused. So each reply is seen before the next turn.
      OUTPUTS: "N BYTES" of N records: BYTES 0, they are in the records; else, 2^40 at the most, in the blob ID.out, or
      "N BYTES SEG JOBS[ SEG JOBS...]", of so many jobs in that segment; then "\tID BYTES FORM" of
      each output that becomes a tensor, whose blob is there. RECORD_FRAMES may be those of some
      jobs of the batch entry NAME. What is told twice has ended once, and its second digit is 0. RECORD_FRAMES "": it could not be read, and goes back, a batch entry opened; no
      digit is for it
  lease NAME EPOCH holds SEQ ID...
      -> how many names of jobs and batch entries went back: its thread 0 was given in its turn SEQ what it
      has, or is idle since that turn and finds in its list what it is given; 0: it has nothing, and will
      find nothing; its other threads have these. Called over each new connection, after a turn; what it
      was given in later turns stays, for the call may come late
  note NAME EPOCH progress "PROGRESS[ LEFT]" ID...
      -> text of a digit for each: 1 still wanted, 0 not, or not of this worker: another holds it. LEFT: us to their end, where that is known

  note NAME EPOCH copies DEVICE ID...
      -> 0: its device has copies of these, where they are tensors, for as long as a lease lasts
  note NAME EPOCH begin THREAD TEXT -> 0: does HSET {q}:claims:NAME @THREAD TEXT, as the worker does by
      itself, and tells of the batch that began. For a worker whose last turn was answered `watched`

EVENTS. While a front end says with its ticks that it is subscribed to {q}:events, what becomes of jobs is published there: when they
are queued, or given back, when a worker that knows of it begins them, when it reports progress, when they end. A
message is "TENANT SKIPPED WORKER\n" and a RECORD_FRAME for each job with its record as it then stands, one
that is long without its tensors. SKIPPED > 0: that is how many jobs are not told of, for their
tenant had more than 4,000 in this second. WORKER: it has begun these jobs, as one batch; else "-".
Nobody needs these messages: they may be lost.

A RECORD_FRAME is [4 bytes: length of the record, little-endian][41 bytes: ID][RECORD], or a frame in the
record's place. What is PUBLISHED on a CHANNEL when jobs that it watches end is one or more record frames,
1 MiB at the most unless one is longer. ]]

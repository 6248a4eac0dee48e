-- A function of several verbs; which is said by the argument at `place`, behind which stand those of the verb.
local function by_verb(place, verbs)
    return function(keys, args)
        local f = verbs[args[place]]
        if not f then return redis.error_reply('ERR no such verb') end
        table.remove(args, place)
        return f(keys, args)
    end
end

-- A Redis that is out of memory still lets jobs end, which is how it gets memory back.
local function add(name, callback, flags)
    redis.register_function({function_name = 'blasd_7_' .. name, callback = with_state(callback),
                             flags = flags})
end
add('open', open, {})
add('submit', submit, {})
add('blob_write', Blob.write, {})
add('blob', by_verb(2, {hold = Blob.hold, drop = Blob.drop}), {'allow-oom'})
add('tensor', by_verb(2, {put = Tensor.put, get = Tensor.get, life = Tensor.life, drop = Tensor.drop,
                          list = Tensor.list}), {'allow-oom'})
add('webhook', by_verb(2, {lease = Hook.lease, done = Hook.done}), {'allow-oom'})
add('watch', watch, {'allow-oom'})
add('cancel', cancel, {'allow-oom'})
add('tick', tick, {'allow-oom'})
add('blob_free', Blob.free, {'allow-oom'})
add('register', register, {'allow-oom'})
add('lease', by_verb(4, {renew = renew, release = release, holds = holds}), {'allow-oom'})
add('turn', turn, {'allow-oom'})
add('note', by_verb(4, {begin = Record.events.begin, progress = progress, copies = Tensor.copies}), {'allow-oom'})
add('get', get, {'no-writes'})
add('list', list, {'no-writes'})
add('stats', stats, {'no-writes'})
add('refs', Blob.refs, {'no-writes'})

-- What the library of schema 4 left: there a worker's claims were a text, and what had begun a hash of
-- its own. The rest is the same. Read next: front_ends.lua.

-- Jobs that such workers held go back, and what had begun has cost an attempt.
local function upgrade()
    for _, name in ipairs(call('HKEYS', K.workers)) do
        local held = gsub(K.claims_of, 'claims:$', 'held:') .. name
        local begun = gsub(K.claims_of, 'claims:$', 'begun:') .. name
        if call('EXISTS', held, begun) > 0 then
            local names, parts = {}, call('HGETALL', begun)
            for one in gmatch(call('GET', held) or '', '%S+') do names[#names + 1] = one end
            for i = 1, #parts, 2 do
                call('HSET', K.claims_of .. name, '@' .. parts[i], parts[i + 1])
            end
            claim_note(name, names, '0 0', {})
            call('DEL', held, begun)
            recover(name)
        end
    end
end


      if outcome >= FOREIGN then
        letter = outcome == FOREIGN and 'f' or 'c'
        break
      end
      if s ~= value or longer then
        if tried then
          tried[key], tried_until[key] = s, max(tried_until[key] or 0, own_time + ttl)
        else
          values[key], until_us[key] = s, max(until_us[key] or 0, own_time + ttl)
        end
      end
      if pass == 1 then
        reply[n + i] = told or before
        local passed = outcome == ADMITTED
        if passes then
          passes[i] = passed
        end
        if role == 0 then
          enforced = enforced and passed
        elseif role == 2 then
          any_quota, quota_passes = true, quota_passes or passed
        end
      elseif told and (stays or passes[i]) then
        reply[n + i] = told
      end
    end
    local admitted = enforced and (quota_passes or not any_quota)
    if not letter and (admitted or count == 1 or pass == 2) then
      letter, lapsed = admitted and 'a' or 'r', lapsed + lapsing
      for key, value in pairs(tried or {}) do
        values[key], until_us[key] = value, max(until_us[key] or 0, tried_until[key])
      end
    elseif letter then
      for i = 1, count do
        reply[n + i] = false
      end
    end
    pass = pass + 1
  until letter
  letters, n, at = letters .. letter, n + count, next_request
end

for key, until_when in pairs(until_us) do
  local value = values[key]
  if plain and plain[key] then
    redis.call('SET', KEYS[key], value, 'EX', plain[key])
  elseif unpack('<I4', value, 1) * 1000000 >= until_when then
    redis.call('SET', KEYS[key], value, 'KEEPTTL')
  else
    -- A quarter and some seconds more, so that those who come soon find it long enough.
    local ms = floor((until_when - now) / 800) + 5001
    local second = min(U32, floor((now + ms * 1000) / 1000000))
    redis.call('SET', KEYS[key], pack('<I4', second) .. sub(value, 5), 'PX', string.format('%.0f', ms))
  end
end

reply[2] = letters
if lapsed > 0 then
  reply[n + 1] = lapsed
end
return reply

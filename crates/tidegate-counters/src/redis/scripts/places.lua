
-- Held places, those that expire first first. An id is eight bytes that no number holds.
local PLACE = 'xxxxxxxxI7I4'

LAWS[6] = function(s, carry)
  local holds, id = unpack('<I7c8', ARG, params)
  local kept, tag, last, used, from = 0, 0x15, 0, 0, 17
  if s ~= '' then
    if #s < 16 or (#s - 16) % 19 ~= 0 then
      return FOREIGN
    end
    kept, tag, last, used = unpack('<I4BI7I4', s, 1)
    if tag ~= 0x15 then
      return FOREIGN
    end
    local ahead = last - now
    if ahead > max(holds, 5000000) then
      local moved = { pack('<I4BI7I4', kept, tag, now, used) }
      for i = 17, #s, 19 do
        local holder, expires, n = unpack('<c8I7I4', s, i)
        moved[#moved + 1] = holder .. pack('<I7I4', max(0, expires - ahead), n)
      end
      s, last = table.concat(moved), now
    end
  end
  local at = max(now, last)
  own_time = at
  if #s > 16 then
    local gone
    from, gone = living(s, 19, PLACE, at, 0)
    used = used - gone
  end
  -- Where the places of the id stand, if it holds any.
  local here
  if ask >= ACQUIRE and id ~= '\0\0\0\0\0\0\0\0' then
    here = string.find(s, id, from, true)
    while here and (here - 17) % 19 ~= 0 do
      here = string.find(s, id, here + 1, true)
    end
  end
  local outcome, applied = ADMITTED, 0
  local body, units -- Of the others; what is to be held, or given back.
  if ask == RELEASE then
    if here and carry then
      applied = -unpack('<I4', s, here + 15)
      body = sub(s, from, here - 1) .. sub(s, here + 19)
    end
  elseif here then
    if carry then
      units = unpack('<I4', s, here + 15)
      body = sub(s, from, here - 1) .. sub(s, here + 19)
    end
  elseif ask == RENEW then
    outcome = NOT_HELD
  else
    outcome, applied = judge(used, carry)
    if applied > 0 then
      units, body = applied, sub(s, from)
    end
  end
  if body then
    used = used + applied
    if units then
      -- Where its expiry belongs: times to live differ only where the limit's was changed.
      local expires, i = at + holds, #body + 1
      while i > 1 and unpack('<I7', body, i - 11) > expires do
        i = i - 19
      end
      body = sub(body, 1, i - 1) .. id .. pack('<I7I4', expires, units) .. sub(body, i)
    end
    s, from = pack('<I4BI7I4', kept, tag, at, used) .. body, 17
    if body ~= '' then
      ttl = max(ttl, unpack('<I7', s, #s - 10) - at) -- Some may be held under a longer time to live than there is now.
    end
  end
  tell(s, from, 19, PLACE, 0, outcome, used, applied)
  return outcome, s, applied
end


-- Held places, those that expire first first. An id is eight bytes that no number holds.
if law == 6 then
  local holds, id = unpack('<I7c8', ARG, params)
  local kept, tag, last, used, from = 0, 0x15, 0, 0, 17
  if s ~= '' then
    tag = 0
    if #s >= 16 and (#s - 16) % 19 == 0 then
      kept, tag, last, used = unpack('<I4BI7I4', s, 1)
    end
    local ahead = last - now
    if ahead > max(holds, 5000000) then
      local moved = { pack('<I4BI7I4', kept, tag, now, used) }
      for place = 17, #s, 19 do
        local holder, expires, n = unpack('<c8I7I4', s, place)
        moved[#moved + 1] = holder .. pack('<I7I4', max(0, expires - ahead), n)
      end
      s, last = table.concat(moved), now
    end
  end
  own_time = max(now, last)
  if tag ~= 0x15 then
    outcome = FOREIGN
  else
    local gone = 0
    if #s > 16 then
      from, gone = living(s, 19, 'xxxxxxxxI7I4', own_time, 0)
      used = used - gone
    end
    local here -- Where the places of the id stand, if it holds any.
    if ask >= ACQUIRE and id ~= '\0\0\0\0\0\0\0\0' then
      here = string.find(s, id, from, true)
      while here and (here - 17) % 19 ~= 0 do
        here = string.find(s, id, here + 1, true)
      end
    end
    local others, held -- Other places; what the id is to hold.
    if here and carry then
      others = sub(s, from, here - 1) .. sub(s, here + 19)
      held = unpack('<I4', s, here + 15)
      if ask == RELEASE then
        units, held = -held, nil
      end
    elseif ask == RENEW and not here then
      outcome = NOT_HELD
    elseif ask ~= RELEASE and not here then
      -- @judge
      if units > 0 then
        others, held = sub(s, from), units
      end
    end
    used = used + units
    if others then
      if held then
        -- Where its expiry belongs: times to live differ only where the limit's was changed.
        local expires, place = own_time + holds, #others + 1
        while place > 1 and unpack('<I7', others, place - 11) > expires do
          place = place - 19
        end
        others = sub(others, 1, place - 1) .. id .. pack('<I7I4', expires, held) .. sub(others, place)
      end
      s, from, lapsing = pack('<I4BI7I4', kept, tag, own_time, used) .. others, 17, lapsing + gone
      if others ~= '' then
        ttl = max(ttl, unpack('<I7', s, #s - 10) - own_time) -- Some may be held under a longer time to live than there is now.
      end
    end
    local least = (outcome == LIMITED or outcome == EXCEEDS) and max(1, cost) or 1
    local fits = ready(s, from, 19, 'xxxxxxxxI7I4', 0, used, least, capacity)
    local ends = from <= #s and unpack('<I7', s, #s - 10) or 0
    told = pack('<BI5I5I7I7I7', outcome, used, units + U32, own_time, fits, ends)
  end
end

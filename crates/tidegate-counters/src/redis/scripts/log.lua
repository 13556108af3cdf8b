
-- The sliding log: every charge with its time.
LAWS[5] = function(s, carry)
  local window = unpack('<I7', ARG, params)
  local kept, tag, last, used, from = 0, 0x14, 0, 0, 17
  if s ~= '' then
    if #s < 16 or (#s - 16) % 11 ~= 0 then
      return FOREIGN
    end
    kept, tag, last, used = unpack('<I4BI7I4', s, 1)
    if tag ~= 0x14 then
      return FOREIGN
    end
    local ahead = last - now
    if ahead > max(window, 5000000) then
      local moved = { pack('<I4BI7I4', kept, tag, now, used) }
      walk(s, 17, 11, 'I7I4', function(time, n)
        moved[#moved + 1] = pack('<I7I4', max(0, time - ahead), n)
      end)
      s, last = table.concat(moved), now
    end
  end
  local at = max(now, last)
  own_time = at
  if #s > 16 then
    if unpack('<I7', s, #s - 10) + window <= at then
      from, used = #s + 1, 0 -- Nothing is left of it.
    else
      local dead
      from, dead = living(s, 11, 'I7I4', at, window)
      used = used - dead
    end
  end
  local outcome, units = ADMITTED, 0
  if ask == REFUND then
    -- What is given back stands side by side: at the end, or at one instant.
    local first, past, given, left = nil, nil, 0, ''
    local i = carry and #s - 10 or 0
    while i >= from and given < cost do
      local time, n = unpack('<I7I4', s, i)
      if of and time < of then
        break
      end
      if not of or time == of then
        local part = min(cost - given, n)
        given, first, past = given + part, i, past or i + 11
        if part < n then
          left = pack('<I7I4', time, n - part)
        end
      end
      i = i - 11
    end
    if given > 0 then
      units, used = -given, used - given
      s = pack('<I4BI7I4', kept, tag, at, used) .. sub(s, from, first - 1) .. left .. sub(s, past)
      from = 17
    end
  else
    outcome, units = judge(used, carry)
    if units > 0 then
      used = used + units
      local body, time, n = sub(s, from), at, 0
      if body ~= '' then
        time, n = unpack('<I7I4', body, #body - 10)
        if time == at then
          body = sub(body, 1, -12)
        else
          n = 0
        end
      end
      s = pack('<I4BI7I4', kept, tag, at, used) .. body .. pack('<I7I4', at, n + units)
      from = 17
    end
  end
  tell(s, from, 11, 'I7I4', window, outcome, used, units)
  return outcome, s, units
end

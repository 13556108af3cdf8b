
-- The sliding log: every charge with its time.
if law == 5 then
  local window = unpack('<I7', ARG, params)
  local kept, tag, last, used, from = 0, 0x14, 0, 0, 17
  if s ~= '' then
    tag = 0
    if #s >= 16 and (#s - 16) % 11 == 0 then
      kept, tag, last, used = unpack('<I4BI7I4', s, 1)
    end
    local ahead = last - now
    if ahead > max(window, 5000000) then
      local moved = { pack('<I4BI7I4', kept, tag, now, used) }
      for entry = 17, #s, 11 do
        local time, n = unpack('<I7I4', s, entry)
        moved[#moved + 1] = pack('<I7I4', max(0, time - ahead), n)
      end
      s, last = table.concat(moved), now
    end
  end
  own_time = max(now, last)
  if tag ~= 0x14 then
    outcome = FOREIGN
  else
    if #s > 16 and unpack('<I7', s, #s - 10) + window <= own_time then
      from, used = #s + 1, 0 -- Nothing is left of it.
    elseif #s > 16 then
      local dead
      from, dead = living(s, 11, 'I7I4', own_time, window)
      used = used - dead
    end
    if ask == REFUND then
      -- What is given back stands side by side: at the end, or at one instant.
      local first, past, left = nil, nil, ''
      local entry = carry and #s - 10 or 0
      while entry >= from and cost + units > 0 do
        local time, n = unpack('<I7I4', s, entry)
        if not of or time == of then
          local part = min(cost + units, n)
          units, first, past = units - part, entry, past or entry + 11
          if part < n then
            left = pack('<I7I4', time, n - part)
          end
        elseif time < of then
          break
        end
        entry = entry - 11
      end
      if units < 0 then
        s = pack('<I4BI7I4', kept, tag, own_time, used + units) .. sub(s, from, first - 1) .. left .. sub(s, past)
        from = 17
      end
    else
      -- @judge
      if units > 0 then
        local body, charged = sub(s, from), units
        if body ~= '' then
          local time, n = unpack('<I7I4', body, #body - 10)
          if time == own_time then
            body, charged = sub(body, 1, -12), n + units
          end
        end
        s = pack('<I4BI7I4', kept, tag, own_time, used + units) .. body .. pack('<I7I4', own_time, charged)
        from = 17
      end
    end
    used = used + units
    local least = (outcome == LIMITED or outcome == EXCEEDS) and max(1, cost) or 1
    local fits = ready(s, from, 11, 'I7I4', window, used, least, capacity)
    local ends = from <= #s and unpack('<I7', s, #s - 10) + window or 0
    told = pack('<BI5I5I7I7I7', outcome, used, units + U32, own_time, fits, ends)
  end
end

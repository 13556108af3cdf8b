
-- A calendar quota. The node tells four periods; the store's time has to be in one of the first three.
LAWS[7] = function(s, carry)
  local ids, starts, at = {}, {}, params
  for i = 1, 4 do
    ids[i], starts[i], at = unpack('<I4I7', ARG, at)
  end
  starts[5] = unpack('<I7', ARG, at)
  if now < starts[1] or now >= starts[4] then
    return NO_PERIOD
  end
  local kept, tag, period, used = 0, 0x16, 0, 0
  if s ~= '' then
    if #s ~= 13 then
      return FOREIGN
    end
    kept, tag, period, used = unpack('<I4BI4I4', s, 1)
    if tag ~= 0x16 then
      return FOREIGN
    end
  end
  local i = 3
  while now < starts[i] do
    i = i - 1
  end
  own_time = now
  if period > ids[i] then
    if period == ids[i + 1] then
      i = i + 1 -- A closed period never reopens.
      own_time = starts[i]
    else
      period = ids[i] -- A broken clock wrote it: what was used stays.
      s = pack('<I4BI4I4', kept, tag, period, used)
    end
  end
  if period ~= ids[i] then
    used = 0
  end
  ttl = starts[i + 1] - own_time
  local outcome, units = ADMITTED, 0
  if ask == REFUND then
    if carry and not (of and (of >= starts[i + 1] or of < starts[i])) then
      units = -min(cost, used)
    end
  else
    outcome, units = judge(used, carry)
  end
  if units ~= 0 then
    s = pack('<I4BI4I4', kept, tag, ids[i], min(U32, used + units))
  end
  return outcome, s, units
end

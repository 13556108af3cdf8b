
-- A calendar quota. The node tells four periods; the store's time has to be in one of the first three.
if law == 7 then
  local ids, starts, field = {}, {}, params
  for period = 1, 4 do
    ids[period], starts[period], field = unpack('<I4I7', ARG, field)
  end
  starts[5] = unpack('<I7', ARG, field)
  local kept, tag, period, used = 0, 0x16, 0, 0
  if s ~= '' then
    tag = 0
    if #s == 13 then
      kept, tag, period, used = unpack('<I4BI4I4', s, 1)
    end
  end
  if tag ~= 0x16 then
    outcome = FOREIGN
  elseif now < starts[1] or now >= starts[4] then
    outcome = NO_PERIOD
  else
    local this = 3
    while now < starts[this] do
      this = this - 1
    end
    if period > ids[this] then
      if period == ids[this + 1] then
        this = this + 1 -- A closed period never reopens.
        own_time = starts[this]
      else
        period = ids[this] -- A broken clock wrote it: what was used stays.
        s = pack('<I4BI4I4', kept, tag, period, used)
      end
    end
    if period ~= ids[this] then
      used = 0
    end
    ttl = starts[this + 1] - own_time
    if ask ~= REFUND then
      -- @judge
    elseif carry and not (of and (of >= starts[this + 1] or of < starts[this])) then
      units = -min(cost, used)
    end
    if units ~= 0 then
      s = pack('<I4BI4I4', kept, tag, ids[this], min(U32, used + units))
    end
  end
end

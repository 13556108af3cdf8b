
-- One aligned window, and what was charged in the one before it.
LAWS[1] = function(s, carry)
  local window = unpack('<I7', ARG, params)
  local kept, tag, index, used, before = 0, 0x11, 0, 0, 0
  local here = div(now, window)
  if s ~= '' then
    if #s ~= 20 then
      return FOREIGN
    end
    kept, tag, index, used, before = unpack('<I4BI7I4I4', s, 1)
    if tag ~= 0x11 then
      return FOREIGN
    end
    if index * window - now > max(window, 5000000) then
      index = here
      s = pack('<I4BI7I4I4', kept, tag, index, used, before)
    end
  end
  if here > index + 1 then
    used, before = 0, 0
  elseif here == index + 1 then
    used, before = 0, used
  else
    here = index
  end
  own_time = max(now, here * window)
  if ask == REFUND then
    local age, given = 0, 0
    if of then
      age = here - div(of, window)
    end
    if carry and age == 0 then
      given = min(cost, used)
      used = used - given
    elseif carry and age == 1 then
      given = min(cost, before)
      before = before - given
    end
    if given > 0 then
      s = pack('<I4BI7I4I4', kept, tag, here, used, before)
    end
    return ADMITTED, s, -given
  end
  local outcome, units = judge(used, carry)
  if units > 0 then
    s = pack('<I4BI7I4I4', kept, tag, here, used + units, before)
  end
  return outcome, s, units
end

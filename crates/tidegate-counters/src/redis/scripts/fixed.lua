
-- One aligned window, and what was charged in the one before it.
if law == 1 then
  local window = unpack('<I7', ARG, params)
  local kept, tag, index, used, before_it = 0, 0x11, 0, 0, 0
  local here = floor(now / window)
  if s ~= '' then
    kept, tag, index, used, before_it = 0, 0, 0, 0, 0
    if #s == 20 then
      kept, tag, index, used, before_it = unpack('<I4BI7I4I4', s, 1)
    end
    if index * window - now > max(window, 5000000) then
      index = here
      s = pack('<I4BI7I4I4', kept, tag, index, used, before_it)
    end
  end
  if here > index + 1 then
    used, before_it = 0, 0
  elseif here == index + 1 then
    used, before_it = 0, used
  else
    here = index
  end
  own_time = max(now, here * window)
  if tag ~= 0x11 then
    outcome = FOREIGN
  elseif ask == REFUND then
    local age = of and here - floor(of / window) or 0
    if carry and age == 0 then
      units = -min(cost, used)
      used = used + units
    elseif carry and age == 1 then
      units = -min(cost, before_it)
      before_it = before_it + units
    end
  else
    -- @judge
    used = used + units
  end
  if units ~= 0 then
    s = pack('<I4BI7I4I4', kept, tag, here, used, before_it)
  end
end

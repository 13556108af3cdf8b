
-- The cell log. Cells of a limit and its window, and the most that a state has.
local PARTS, CELLS_BYTES = 20, 163 * 12

-- The low 32 bits, also of a difference below zero.
local function low32(n)
  return n % 4294967296
end

-- The cells in some bytes.
local function cells_of(bytes)
  local list = {}
  for i = 1, #bytes, 12 do
    local first, last, units = unpack('<I4I4I4', bytes, i)
    list[#list + 1] = { first, last, units }
  end
  return list
end

-- Joins neighbours that fit one cell, and packs them. The cell at the edge stays as it is, so that the estimate does not move.
local function compact(list, at, window, cell_units)
  local kept, packed = {}, {}
  for _, cell in ipairs(list) do
    local before, joined = kept[#kept], false
    if cell[3] == 0 then
      joined = true -- Nothing is left of it.
    elseif before then
      local tied = #kept > 1 and kept[#kept - 1][2] == before[1]
      local first = low32(at - before[1])
      local is_short = (first - low32(at - cell[2])) * PARTS < window
      if before[3] + cell[3] <= cell_units and is_short and first < window and not tied then
        before[2], before[3] = cell[2], before[3] + cell[3]
        joined = true
      end
    end
    if not joined then
      kept[#kept + 1] = cell
    end
  end
  for i, cell in ipairs(kept) do
    packed[i] = pack('<I4I4I4', cell[1], cell[2], cell[3])
  end
  return table.concat(packed)
end

LAWS[4] = function(s, carry)
  local window, tick, strict = unpack('<I7I4B', ARG, params)
  local cell_units = max(1, div_up(amount, PARTS))
  local ticks = div(now, tick)
  local kept, tag, flags, last, total = 0, 0x13, 0, 0, 0
  local at, used, live_units, from = ticks, 0, 0, 19 -- Where the cells begin that have not left the window, and their units.
  if s ~= '' then
    if #s < 18 or (#s - 18) % 12 ~= 0 then
      return FOREIGN
    end
    kept, tag, flags, last, total = unpack('<I4BBI7I5', s, 1)
    if tag ~= 0x13 then
      return FOREIGN
    end
    local ahead = last - ticks
    if ahead > div(max(window * tick, 5000000), tick) then
      local moved = { pack('<I4BBI7I5', kept, tag, flags, ticks, total) }
      for i = 19, #s, 12 do
        local first, latest, units = unpack('<I4I4I4', s, i)
        moved[#moved + 1] = pack('<I4I4I4', low32(first - ahead), low32(latest - ahead), units)
      end
      s, last = table.concat(moved), ticks
    end
    at = max(ticks, last)
    local since, low = at - last, low32(last)
    live_units = total
    while from <= #s do
      local first, latest, units = unpack('<I4I4I4', s, from)
      latest = since + low32(low - latest)
      if since < window and latest < window then
        first = since + low32(low - first)
        used = live_units
        if first >= window and strict == 0 then
          -- The edge cuts through it: one unit is known to be at each end, the others lie on the line between, to the nearest.
          used = used - units + 1
          if units > 2 then
            local span = first - latest
            used = used + div(2 * (units - 2) * (window - latest) + span, 2 * span)
          end
        end
        break
      end
      live_units = live_units - units
      if since >= window then
        from, live_units = #s, 0 -- Nothing was written for a whole window.
      end
      from = from + 12
    end
    if from > #s then
      from = #s + 1
    end
  end
  own_time = at * tick
  if ask == REFUND then
    local age = of and at - div(of, tick)
    if not carry or (age and (age < 0 or age >= window)) then
      return ADMITTED, s, 0
    end
    local list, given, low = cells_of(sub(s, from)), 0, low32(at)
    for i = #list, 1, -1 do
      local cell = list[i]
      if not age or (age <= low32(low - cell[1]) and age >= low32(low - cell[2])) then
        local part = min(cost - given, cell[3])
        cell[3], given = cell[3] - part, given + part
        if given == cost then
          break
        end
      end
    end
    if given == 0 then
      return ADMITTED, s, 0
    end
    local cells = compact(list, at, window, cell_units)
    flags = 0
    if cells ~= '' then
      flags = 128 -- The ends of a cell may be empty places now.
    end
    return ADMITTED, pack('<I4BBI7I5', kept, tag, flags, at, live_units - given) .. cells, -given
  end
  local outcome, units = judge(used, carry)
  if units == 0 then
    return outcome, s, 0
  end
  local body, rest, low = '', units, low32(at)
  if from > #s then
    flags = 0
  else
    local newest = #s - 11
    local first, latest, held = unpack('<I4I4I4', s, newest)
    local age = low32(low - first)
    local room = min(rest, cell_units - held)
    if age == 0 then
      -- Same instant: exact whatever the size.
      body = sub(s, from, newest - 1) .. pack('<I4I4I4', first, latest, held + rest)
      rest = 0
    elseif room > 0 and age * PARTS < window and not (newest > from and unpack('<I4', s, newest - 8) == first) then
      body = sub(s, from, newest - 1) .. pack('<I4I4I4', first, low, held + room)
      rest = rest - room
    else
      body = sub(s, from)
    end
  end
  if rest > 0 then
    if #body == CELLS_BYTES then
      body = compact(cells_of(body), at, window, cell_units)
    end
    body = body .. pack('<I4I4I4', low, low, rest)
  end
  return outcome, pack('<I4BBI7I5', kept, tag, flags, at, live_units + units) .. body, units
end


-- The cell log: 20 cells of a limit and its window at least, 163 at most.
if law == 4 then
  local window, tick, strict = unpack('<I7I4B', ARG, params)
  local ticks = floor(now / tick)
  local kept, tag, refunded, last, live = 0, 0x13, 0, 0, 0
  local own, used, from = ticks, 0, 19 -- Where the cells begin that have not left the window; `live` is their units.
  if s ~= '' then
    tag = 0
    if #s >= 18 and (#s - 18) % 12 == 0 then
      kept, tag, refunded, last, live = unpack('<I4BBI7I5', s, 1)
    end
    local ahead = last - ticks
    if ahead > floor(max(window * tick, 5000000) / tick) then
      local moved = { pack('<I4BBI7I5', kept, tag, refunded, ticks, live) }
      for cell = 19, #s, 12 do
        local first, latest, n = unpack('<I4I4I4', s, cell)
        moved[#moved + 1] = pack('<I4I4I4', (first - ahead) % 4294967296, (latest - ahead) % 4294967296, n)
      end
      s, last = table.concat(moved), ticks
    end
    own = max(ticks, last)
    local since, low = own - last, last % 4294967296
    if since >= window then
      from, live = #s + 1, 0 -- Nothing was written for a whole window.
    end
    while from <= #s do
      local first, latest, n = unpack('<I4I4I4', s, from)
      latest = since + (low - latest) % 4294967296
      if latest < window then
        first = since + (low - first) % 4294967296
        used = live
        if first >= window and strict == 0 then
          -- The edge cuts through it: one unit is known to be at each end, the others lie on the line between, to the nearest.
          used = used - n + 1
          if n > 2 then
            used = used + floor((2 * (n - 2) * (window - latest) + first - latest) / (2 * (first - latest)))
          end
        end
        break
      end
      from, live = from + 12, live - n
    end
  end
  own_time = own * tick
  local body, low, cell_units = nil, own % 4294967296, max(1, ceil(amount / 20))
  local list -- The cells one by one, where they have to be looked at: first, last, units.
  if tag ~= 0x13 then
    outcome = FOREIGN
  elseif ask == REFUND then
    local age = of and own - floor(of / tick)
    if carry and not (age and (age < 0 or age >= window)) then
      list = {}
      for cell = from, #s, 12 do
        local first, latest, n = unpack('<I4I4I4', s, cell)
        list[#list + 1] = { first, latest, n }
      end
      for cell = #list, 1, -1 do
        local first, latest = list[cell][1], list[cell][2]
        if not age or (age <= (low - first) % 4294967296 and age >= (low - latest) % 4294967296) then
          local part = min(cost + units, list[cell][3])
          list[cell][3], units = list[cell][3] - part, units - part
        end
      end
    end
  else
    -- @judge
    local rest = units
    if units > 0 and from > #s then
      body, refunded = '', 0
    elseif units > 0 then
      local newest = #s - 11
      local first, latest, held = unpack('<I4I4I4', s, newest)
      local age = (low - first) % 4294967296
      local room = min(rest, cell_units - held)
      if age == 0 then
        -- Same instant: exact whatever the size.
        body, rest = sub(s, from, newest - 1) .. pack('<I4I4I4', first, latest, held + rest), 0
      elseif room > 0 and age * 20 < window and not (newest > from and unpack('<I4', s, newest - 8) == first) then
        body, rest = sub(s, from, newest - 1) .. pack('<I4I4I4', first, low, held + room), rest - room
      else
        body = sub(s, from)
      end
    end
    if rest > 0 and #body == 12 * 163 then
      list = {}
      for cell = 1, #body, 12 do
        local first, latest, n = unpack('<I4I4I4', body, cell)
        list[#list + 1] = { first, latest, n }
      end
    end
    used = rest -- What is left for a cell of its own.
  end
  if list and units ~= 0 then
    -- Neighbours that fit one cell are joined. The cell at the edge stays as it is, so that the estimate does not move.
    local joined, packed = {}, {}
    for _, cell in ipairs(list) do
      local one = joined[#joined]
      local first = one and (low - one[1]) % 4294967296
      if cell[3] == 0 then
        -- Nothing is left of it.
      elseif
        one
        and one[3] + cell[3] <= cell_units
        and (first - (low - cell[2]) % 4294967296) * 20 < window
        and first < window
        and not (#joined > 1 and joined[#joined - 1][2] == one[1])
      then
        one[2], one[3] = cell[2], one[3] + cell[3]
      else
        joined[#joined + 1] = cell
      end
    end
    for cell, one in ipairs(joined) do
      packed[cell] = pack('<I4I4I4', one[1], one[2], one[3])
    end
    body = table.concat(packed)
    if ask == REFUND then
      refunded = body ~= '' and 128 or 0 -- The ends of a cell may be empty places now.
    end
  end
  if units ~= 0 then
    if ask ~= REFUND and used > 0 then
      body = body .. pack('<I4I4I4', low, low, used)
    end
    s = pack('<I4BBI7I5', kept, tag, refunded, own, live + units) .. body
  end
end

-- Judges requests and carries them out, in order, each in one piece: admitted, every take that passes is charged; refused, only what stays
-- in any case is. The same law as tidegate-core's, on the same portable states (docs/counters.md), in the same integers: every number here
-- is below 2^53, where doubles are exact.
--
-- KEYS     the counters.
-- ARGV[1]  the requests, packed (see encode.rs): what is read here is written there, field by field.
--
-- Answers: the time by which was judged, µs; a letter for each request (a admitted, r refused, f a state that is not ours, c the node's
-- calendar does not reach the store's time); then for each take its counter as it was before its request or, where that is a list, what
-- the node has to know of it (see decode.rs). The node works out all other numbers from that, by the law itself.
--
-- A value is the second until which the store keeps it (4 bytes), then the portable state. While that covers the time to reset it stays:
-- to write with KEEPTTL costs half of what a new time to live does.

local spread = unpack -- Before its name is taken.
local pack, unpack, sub, byte, rep, find = struct.pack, struct.unpack, string.sub, string.byte, string.rep, string.find
local floor, fmod, min, max = math.floor, math.fmod, math.min, math.max

local ARG = ARGV[1]
local TWO32 = 4294967296
local U32 = 4294967295
-- Cells of a limit and its window, and the most cells of a state.
local PARTS, CELLS_MAX = 20, 163
local NOBODY = rep('\0', 8)

local now
local changed = {} -- Counters to be written: charged, given back to, or repaired after a broken clock.

-- ⌊a / b⌋. A quotient of doubles may be rounded up across an integer; a remainder is exact.
local function div(a, b)
  return (a - fmod(a, b)) / b
end

local function div_up(a, b)
  local r = fmod(a, b)
  if r == 0 then
    return a / b
  end
  return (a - r) / b + 1
end

-- ⌈a · b / c⌉ for b ≤ c < 2^45 and a < 2^32, also where the product is too large for a double: seven bits at a time.
local function mul_div_up(a, b, c)
  if a * b < 9007199254740992 then
    return div_up(a * b, c)
  end
  local q, r, shift = 0, 0, 268435456 -- 2^28
  while shift >= 1 do
    local chunk = div(a, shift)
    a = a - chunk * shift
    local x = r * 128 + chunk * b
    r = fmod(x, c)
    q = q * 128 + (x - r) / c
    shift = shift / 128
  end
  if r > 0 then
    q = q + 1
  end
  return q
end

-- How far ahead a stored time may be before it counts as written by a broken clock.
local function patience(window_us)
  return max(window_us, 5000000)
end

-- The most that forced charges may bring a counter to.
local function ceiling(capacity)
  return min(2 * capacity, U32)
end

-- Each law has
--   tag, head, item   the first byte of its states, the bytes before the list, the bytes of an item
--   args              reads its own numbers from the requests
--   see(t, s)         what the counter is at this instant: units in use, its own time in µs, what else the law wants to know; first of all
--                     the state, repaired
--   charge(t, s, units, ...)            the state with so many more units; `...` is what `see` found
--   refund(t, s, units, of, ...)        the state with fewer, and how many were given back
-- A list has besides
--   sum(t, s, cost)   what the node has to know

-- One aligned window, and what was charged in the one before it.
local fixed = { tag = 0x11, head = 8, item = 4 }

function fixed.args(t, at)
  t.window, at = unpack('<I7', ARG, at)
  return at
end

function fixed.see(t, s)
  local index, newest, before = 0, 0, 0
  if s ~= '' then
    index, newest, before = unpack('<I7I4I4', s, 2)
  end
  local here = div(now, t.window)
  if index * t.window - now > patience(t.window) then
    index = here
    s = pack('<BI7I4I4', 0x11, index, newest, before)
  end
  if here > index + 1 then
    newest, before = 0, 0
  elseif here == index + 1 then
    newest, before = 0, newest
  elseif here < index then
    here = index
  end
  return s, newest, max(now, here * t.window), here, before
end

function fixed.charge(_, _, units, used, _, here, before)
  return pack('<BI7I4I4', 0x11, here, used + units, before)
end

function fixed.refund(t, s, units, of, used, _, here, before)
  local age = 0
  if of then
    age = here - div(of, t.window)
  end
  if age == 0 and used > 0 then
    local given = min(units, used)
    return pack('<BI7I4I4', 0x11, here, used - given, before), given
  elseif age == 1 and before > 0 then
    local given = min(units, before)
    return pack('<BI7I4I4', 0x11, here, used, before - given), given
  end
  return s, 0
end

local parted = { tag = 0x11, head = 8, item = 4 } -- Sub-windows; with one of them, the two-window counter.

function parted.args(t, at)
  t.k, t.width, t.tick, t.strict, at = unpack('<HI7I4B', ARG, at)
  t.window = t.width * t.tick * t.k
  return at
end

function parted.see(t, s)
  local k, width = t.k, t.width
  local index = 0
  if s ~= '' then
    index = unpack('<I7', s, 2)
  end
  local ticks = div(now, t.tick)
  local newest = div(ticks, width)
  local offset = ticks - newest * width
  local width_us = width * t.tick
  if index * width_us - ticks * t.tick > patience(t.window) then
    index = div_up(ticks * t.tick, width_us)
    s = pack('<BI7', 0x11, index) .. sub(s, 9)
  end
  if newest < index then
    newest, offset = index, 0
  end
  local unseen = newest - index
  local whole, leaving = 0, 0
  if s ~= '' and unseen <= k then
    local counts = { unpack('<' .. rep('I4', k + 1 - unseen), s, 9) }
    for i = 1, k - unseen do
      whole = whole + counts[i]
    end
    leaving = counts[k + 1 - unseen]
  end
  local counted = leaving
  if t.strict == 0 then
    counted = mul_div_up(leaving, width - offset, width)
  end
  return s, whole + counted, (newest * width + offset) * t.tick, newest, unseen
end

-- The counts with `newest` in front; the oldest fall off.
local function parted_roll(t, s, unseen)
  if s == '' or unseen > t.k then
    return rep('\0', 4 * (t.k + 1))
  end
  return rep('\0', 4 * unseen) .. sub(s, 9, 8 + 4 * (t.k + 1 - unseen))
end

function parted.charge(t, s, units, _, _, newest, unseen)
  local counts = parted_roll(t, s, unseen)
  local first = unpack('<I4', counts, 1)
  return pack('<BI7I4', 0x11, newest, first + units) .. sub(counts, 5)
end

function parted.refund(t, s, units, of, _, _, newest, unseen)
  local age = 0
  if of then
    age = newest - div(of, t.width * t.tick)
  end
  if age < 0 or age > t.k then
    return s, 0
  end
  local counts = parted_roll(t, s, unseen)
  local there = unpack('<I4', counts, 4 * age + 1)
  local given = min(units, there)
  if given == 0 then
    return s, 0
  end
  local left = pack('<I4', there - given)
  return pack('<BI7', 0x11, newest) .. sub(counts, 1, 4 * age) .. left .. sub(counts, 4 * age + 5), given
end

-- A level that leaks.
local level = { tag = 0x12, head = 16, item = 0 }
local TICKS = { [0] = 1, 10, 100, 1000, 10000, 100000, 1000000 }

function level.args(t, at)
  t.burst, t.window_ticks, t.exponent, at = unpack('<I4I7B', ARG, at)
  t.tick = TICKS[t.exponent]
  t.window = t.window_ticks * t.tick
  return at
end

function level.see(t, s)
  local tick, window = t.tick, t.window_ticks
  local ticks = div(now, tick)
  if s == '' then
    return s, 0, ticks * tick, ticks, 0, false
  end
  local flags, used, last_us = unpack('<BI7I7', s, 2)
  local owed = flags >= 128
  local last = div(last_us, tick)
  if (last - ticks) * tick > patience(t.window) then
    last = ticks
    s = pack('<BBI7I7', 0x12, flags, used, ticks * tick)
  end
  local at = max(ticks, last)
  local written = TICKS[flags % 8]
  if written > tick then
    used = used * (written / tick)
  elseif written < tick then
    used = div_up(used, tick / written)
  end
  local stored = min(used, ceiling(t.capacity) * window)
  local left = max(0, stored - (at - last) * t.amount)
  owed = left > 0 and (owed or stored > t.burst * window)
  t.left = left
  return s, div_up(left, window), at * tick, at, left, owed
end

local function level_write(t, at, left, owed)
  owed = left > 0 and (owed or left > t.burst * t.window_ticks)
  return pack('<BBI7I7', 0x12, t.exponent + (owed and 128 or 0), left, at * t.tick)
end

function level.charge(t, _, units, _, _, at, left, owed)
  return level_write(t, at, left + units * t.window_ticks, owed)
end

function level.refund(t, s, units, of, used, _, at, left, owed)
  local fullest = owed and ceiling(t.capacity) or t.burst
  if of and max(0, at - div(of, t.tick)) * t.amount >= fullest * t.window_ticks then
    return s, 0
  end
  local given = min(units, used)
  if given == 0 then
    return s, 0
  end
  return level_write(t, at, max(0, left - given * t.window_ticks), owed), given
end

-- The cell log.
local cells = { tag = 0x13, head = 14, item = 12 }

function cells.args(t, at)
  t.window_ticks, t.tick, t.strict, at = unpack('<I7I4B', ARG, at)
  t.window = t.window_ticks * t.tick
  t.cell_units = max(1, div_up(t.amount, PARTS))
  return at
end

local function low32(n)
  return n - floor(n / TWO32) * TWO32
end

function cells.see(t, s)
  local window = t.window_ticks
  local ticks = div(now, t.tick)
  if s == '' then
    return s, 0, ticks * t.tick, ticks, 0, 0, 0
  end
  local flags, last, total = unpack('<BI7I5', s, 2)
  local ahead = last - ticks
  if ahead > div(patience(t.window), t.tick) then
    local moved = { pack('<BBI7I5', 0x13, flags, ticks, total) }
    for i = 15, #s, 12 do
      local first, latest, units = unpack('<I4I4I4', s, i)
      moved[#moved + 1] = pack('<I4I4I4', low32(first - ahead), low32(latest - ahead), units)
    end
    s, last = table.concat(moved), ticks
  end
  local at = max(ticks, last)
  local since, low = at - last, low32(last)
  -- How many bytes of the oldest cells have left the window, and their units.
  local dead, dead_units, used = 0, 0, total
  if since >= window then
    dead, dead_units, used = #s - 14, total, 0
  else
    for i = 15, #s, 12 do
      local first, latest, units = unpack('<I4I4I4', s, i)
      latest = since + low32(low - latest)
      if latest < window then
        first = since + low32(low - first)
        used = total - dead_units
        if first >= window and t.strict == 0 then
          -- The edge cuts through it: one unit is known to be at each end, the others lie on the line between.
          local live = 1
          if units > 2 then
            local span = first - latest
            live = 1 + div(2 * (units - 2) * (window - latest) + span, 2 * span)
          end
          used = used - units + live
        end
        break
      end
      dead, dead_units = dead + 12, dead_units + units
    end
    if dead == #s - 14 then
      used = 0
    end
  end
  return s, used, at * t.tick, at, total, dead, dead_units
end

-- Joins neighbours that fit one cell; the cell at the edge stays as it is.
local function cells_compact(t, list, at)
  local kept = {}
  for _, cell in ipairs(list) do
    local before = kept[#kept]
    local joined = false
    if before then
      local tied = #kept > 1 and kept[#kept - 1][2] == before[1]
      local first = low32(at - before[1])
      local short = (first - low32(at - cell[2])) * PARTS < t.window_ticks
      if before[3] + cell[3] <= t.cell_units and short and first < t.window_ticks and not tied then
        before[2], before[3] = cell[2], before[3] + cell[3]
        joined = true
      end
    end
    if not joined then
      kept[#kept + 1] = cell
    end
  end
  return kept
end

local function cells_list(s, from)
  local list = {}
  for i = from, #s, 12 do
    list[#list + 1] = { unpack('<I4I4I4', s, i) }
    list[#list][4] = nil -- The position after it.
  end
  return list
end

local function cells_pack(list)
  local packed = {}
  for i, cell in ipairs(list) do
    packed[i] = pack('<I4I4I4', cell[1], cell[2], cell[3])
  end
  return table.concat(packed)
end

function cells.charge(t, s, units, _, _, at, total, dead, dead_units)
  local flags = 0
  local from = 15 + dead -- The first cell that lives.
  if #s >= from then
    flags = byte(s, 2)
  end
  local body, low, rest = '', low32(at), units
  local n = max(0, (#s - 14 - dead) / 12)
  if n > 0 then
    local newest_at = #s - 11
    local first, latest, held = unpack('<I4I4I4', s, newest_at)
    local age = low32(low - first)
    if age == 0 then
      body = sub(s, from, newest_at - 1) .. pack('<I4I4I4', first, latest, held + rest)
      rest = 0
    else
      local room = t.cell_units - held
      local tied = n > 1 and unpack('<I4', s, newest_at - 8) == first
      if room > 0 and age * PARTS < t.window_ticks and not tied then
        local part = min(rest, room)
        body = sub(s, from, newest_at - 1) .. pack('<I4I4I4', first, low, held + part)
        rest = rest - part
      else
        body = sub(s, from)
      end
    end
  end
  if rest > 0 then
    if #body == 12 * CELLS_MAX then
      body = cells_pack(cells_compact(t, cells_list(body, 1), at))
    end
    body = body .. pack('<I4I4I4', low, low, rest)
  end
  return pack('<BBI7I5', 0x13, flags, at, total - dead_units + units) .. body
end

function cells.refund(t, s, units, of, _, _, at, total, dead, dead_units)
  local age
  if of then
    age = at - div(of, t.tick)
    if age < 0 or age >= t.window_ticks then
      return s, 0
    end
  end
  local list = cells_list(s, 15 + dead)
  local given, low = 0, low32(at)
  for i = #list, 1, -1 do
    local cell = list[i]
    if not age or (age <= low32(low - cell[1]) and age >= low32(low - cell[2])) then
      local part = min(units - given, cell[3])
      cell[3] = cell[3] - part
      given = given + part
      if given == units then
        break
      end
    end
  end
  if given == 0 then
    return s, 0
  end
  local kept = {}
  for _, cell in ipairs(list) do
    if cell[3] > 0 then
      kept[#kept + 1] = cell
    end
  end
  kept = cells_compact(t, kept, at)
  local flags = #kept > 0 and 128 or 0
  return pack('<BBI7I5', 0x13, flags, at, total - dead_units - given) .. cells_pack(kept), given
end

-- A calendar quota. The node tells four periods, of which the store's time has to be in one of the first three.
local spent = { tag = 0x16, head = 9, item = 0 }

function spent.args(t, at)
  local ids, starts = {}, {}
  for i = 1, 4 do
    ids[i], starts[i], at = unpack('<I4I7', ARG, at)
  end
  starts[5], at = unpack('<I7', ARG, at)
  t.ids, t.starts = ids, starts
  return at
end

-- Is the store's time within what the node told?
function spent.reaches(t)
  return now >= t.starts[1] and now < t.starts[4]
end

function spent.see(t, s)
  local period, used = 0, 0
  if s ~= '' then
    period, used = unpack('<I4I4', s, 2)
  end
  local i = 3
  while now < t.starts[i] do
    i = i - 1
  end
  local opens = now
  if period > t.ids[i] then
    if period == t.ids[i + 1] then
      i = i + 1 -- A closed period never reopens.
      opens = t.starts[i]
    else
      period = t.ids[i]
      s = pack('<BI4I4', 0x16, period, used)
    end
  end
  if period ~= t.ids[i] then
    used = 0
  end
  t.ttl = t.starts[i + 1] - opens
  return s, used, opens, i
end

function spent.charge(t, _, units, used, _, i)
  return pack('<BI4I4', 0x16, t.ids[i], min(U32, used + units))
end

function spent.refund(t, s, units, of, used, _, i)
  local given = min(units, used)
  if given == 0 or (of and (of >= t.starts[i + 1] or of < t.starts[i])) then
    return s, 0
  end
  return pack('<BI4I4', 0x16, t.ids[i], used - given), given
end

-- Walks the items of a list from byte `from` on, `size` bytes each, many at a time: `each` is given the numbers of one and says whether
-- to stop. `form` reads two numbers of an item.
local CHUNK = 32

local function walk(s, from, size, form, each)
  local i = from
  while i <= #s do
    local n = min(CHUNK, (#s - i + 1) / size)
    local numbers = { unpack('<' .. rep(form, n), s, i) }
    for j = 1, 2 * n, 2 do
      if each(numbers[j], numbers[j + 1]) then
        return
      end
    end
    i = i + n * size
  end
end

-- How many bytes of the first items have ended by `at`, and their units.
local function ended(s, size, form, at, longer)
  local bytes, units = 0, 0
  walk(s, 13, size, form, function(time, n)
    if time + longer > at then
      return true
    end
    bytes, units = bytes + size, units + n
  end)
  return bytes, units
end

-- When, if nothing is added, a cost fits a list; 0 if it does now.
local function fits_at(s, from, size, form, used, room, longer)
  local ready = 0
  if used > room then
    walk(s, from, size, form, function(time, n)
      used, ready = used - n, time + longer
      return used <= room
    end)
  end
  return ready
end

-- The sliding log: every charge with its time.
local log = { tag = 0x14, head = 12, item = 11, list = true }

function log.args(t, at)
  t.window, at = unpack('<I7', ARG, at)
  return at
end

function log.see(t, s)
  if s == '' then
    return s, 0, now, 0
  end
  local last, total = unpack('<I7I4', s, 2)
  local ahead = last - now
  if ahead > patience(t.window) then
    local moved = { pack('<BI7I4', 0x14, now, total) }
    walk(s, 13, 11, 'I7I4', function(time, n)
      moved[#moved + 1] = pack('<I7I4', max(0, time - ahead), n)
    end)
    s, last = table.concat(moved), now
  end
  local at = max(now, last)
  if #s == 12 then
    return s, 0, at, 0
  end
  if unpack('<I7', s, #s - 10) + t.window <= at then
    return s, 0, at, #s - 12 -- Nothing is left of it.
  end
  local dead, units = ended(s, 11, 'I7I4', at, t.window)
  return s, total - units, at, dead
end

function log.charge(t, s, units, used, at, dead)
  local body = sub(s, 13 + dead)
  if body ~= '' then
    local time, n = unpack('<I7I4', body, #body - 10)
    if time == at then
      return pack('<BI7I4', 0x14, at, used + units) .. sub(body, 1, -12) .. pack('<I7I4', time, n + units)
    end
  end
  return pack('<BI7I4', 0x14, at, used + units) .. body .. pack('<I7I4', at, units)
end

function log.refund(t, s, units, of, used, at, dead)
  -- What is given back stands side by side: at the end, or at one instant.
  local from, to, given, left = nil, nil, 0, ''
  for i = #s - 10, 13 + dead, -11 do
    local time, n = unpack('<I7I4', s, i)
    if of and time < of then
      break
    end
    if not of or time == of then
      local part = min(units - given, n)
      given = given + part
      from, to = i, to or i + 10
      if part < n then
        left = pack('<I7I4', time, n - part)
      end
      if given == units then
        break
      end
    end
  end
  if given == 0 then
    return s, 0
  end
  local head = pack('<BI7I4', 0x14, at, used - given)
  return head .. sub(s, 13 + dead, from - 1) .. left .. sub(s, to + 1), given
end

-- Units in use, when a cost fits, when the last entry leaves.
function log.sum(t, s, cost)
  local _, used, at, dead = log.see(t, s)
  local ready = 0
  if cost <= t.capacity then
    ready = fits_at(s, 13 + dead, 11, 'I7I4', used, t.capacity - cost, t.window)
  end
  local latest = 0
  if #s > 12 + dead then
    latest = unpack('<I7', s, #s - 10) + t.window
  end
  return used, at, ready, latest
end

-- Held places, those that expire first first.
local places = { tag = 0x15, head = 12, item = 19, list = true }
local PLACE = 'xxxxxxxxI7I4' -- An id is eight bytes that no number holds.

function places.args(t, at)
  t.window, t.id, at = unpack('<I7c8', ARG, at)
  return at
end

function places.see(t, s)
  if s == '' then
    return s, 0, now, 0
  end
  local last, total = unpack('<I7I4', s, 2)
  local ahead = last - now
  if ahead > patience(t.window) then
    local moved = { pack('<BI7I4', 0x15, now, total) }
    for i = 13, #s, 19 do
      local id, expires, n = unpack('<c8I7I4', s, i)
      moved[#moved + 1] = id .. pack('<I7I4', max(0, expires - ahead), n)
    end
    s, last = table.concat(moved), now
  end
  local at = max(now, last)
  local gone, units = ended(s, 19, PLACE, at, 0)
  return s, total - units, at, gone
end

-- Where the places of an id that has not expired stand.
local function places_find(t, s, gone)
  if t.id == NOBODY then
    return nil
  end
  local from = 13 + gone
  while true do
    local i = find(s, t.id, from, true)
    if not i then
      return nil
    end
    if (i - 13) % 19 == 0 then
      return i
    end
    from = i + 1
  end
end

-- Puts a place where its expiry belongs.
local function places_insert(t, body, units, at)
  local expires = at + t.window
  local i = #body + 1
  while i > 19 and unpack('<I7', body, i - 11) > expires do
    i = i - 19
  end
  return sub(body, 1, i - 1) .. t.id .. pack('<I7I4', expires, units) .. sub(body, i)
end

function places.charge(t, s, units, used, at, gone)
  return pack('<BI7I4', 0x15, at, used + units) .. places_insert(t, sub(s, 13 + gone), units, at)
end

function places.renew(t, s, used, at, gone)
  local i = places_find(t, s, gone)
  if not i then
    return s, false
  end
  local units = unpack('<I4', s, i + 15)
  local body = sub(s, 13 + gone, i - 1) .. sub(s, i + 19)
  return pack('<BI7I4', 0x15, at, used) .. places_insert(t, body, units, at), true
end

function places.release(t, s, used, at, gone)
  local i = places_find(t, s, gone)
  if not i then
    return s, 0
  end
  local units = unpack('<I4', s, i + 15)
  return pack('<BI7I4', 0x15, at, used - units) .. sub(s, 13 + gone, i - 1) .. sub(s, i + 19), units
end

function places.sum(t, s, cost)
  local _, used, at, gone = places.see(t, s)
  local ready = 0
  if cost <= t.capacity then
    ready = fits_at(s, 13 + gone, 19, PLACE, used, t.capacity - cost, 0)
  end
  local latest = 0
  if #s > 12 + gone then
    latest = unpack('<I7', s, #s - 10)
  end
  return used, at, ready, latest
end

local LAWS = { fixed, parted, level, cells, log, places, spent }

-- What is asked of a counter.
local PEEK, CHARGE, LOOK, REFUND, FORCE, ACQUIRE, RENEW, RELEASE = 0, 1, 2, 3, 4, 5, 6, 7
-- What became of it.
local ADMITTED, LIMITED, EXCEEDS, NOT_HELD = 0, 1, 2, 3

-- Judges a take on a state and, if `carry`, carries it out. Gives the outcome, the state, and the units that were applied.
local function step(t, s, carry)
  local law, ask, cost = t.law, t.ask, t.cost
  local used, at, a, b, c, d
  s, used, at, a, b, c, d = law.see(t, s)
  t.at = at
  if ask == LOOK then
    return ADMITTED, s, 0
  elseif ask == REFUND then
    if not carry then
      return ADMITTED, s, 0
    end
    local after, given = law.refund(t, s, cost, t.of, used, at, a, b, c, d)
    return ADMITTED, after, -given
  elseif ask == RELEASE then
    if not carry then
      return ADMITTED, s, 0
    end
    local after, given = law.release(t, s, used, at, a)
    return ADMITTED, after, -given
  elseif ask == RENEW or ask == ACQUIRE then
    local after, held = law.renew(t, s, used, at, a)
    if held then
      return ADMITTED, carry and after or s, 0
    elseif ask == RENEW then
      return NOT_HELD, s, 0
    end
  end
  local capacity = t.capacity
  local outcome = ADMITTED
  if ask ~= FORCE then
    local least = max(1, cost)
    if capacity == 0 then
      outcome = LIMITED
    elseif least > capacity then
      outcome = EXCEEDS
    elseif used + least > capacity then
      outcome = LIMITED
    end
  end
  if not carry or cost == 0 or ask == PEEK then
    return outcome, s, 0
  end
  if outcome == ADMITTED and ask ~= FORCE then
    return outcome, law.charge(t, s, cost, used, at, a, b, c, d), cost
  elseif ask == FORCE or t.always then
    local forced = min(cost, max(0, ceiling(capacity) - used))
    if forced > 0 then
      return outcome, law.charge(t, s, forced, used, at, a, b, c, d), forced
    end
  end
  return outcome, s, 0
end

-- What the node has to know of a list after a step.
local function summary(t, s, outcome, applied)
  -- On a refusal when the cost fits; else, where nothing remains, when a unit does.
  local cost = 1
  if outcome == LIMITED or outcome == EXCEEDS then
    cost = max(1, t.cost)
  end
  local used, at, ready, latest = t.law.sum(t, s, cost)
  return pack('<BI5I5I7I7I7', outcome, used, applied + U32, at, ready, latest)
end

-- Reads a take.
local function read(at)
  local t = {}
  local flags, law
  t.key, t.ask, flags, law, t.cost, t.amount, t.capacity, t.ttl, at = unpack('<HBBBI6I4I4I7', ARG, at)
  t.law = LAWS[law]
  t.role = flags % 4
  t.always = flags % 8 >= 4
  t.stays = flags % 16 >= 8
  if flags >= 16 then
    t.of, at = unpack('<I7', ARG, at)
  end
  return t, t.law.args(t, at)
end

local ENFORCE, QUOTA = 0, 2

local told, requests, at
told, requests, at = unpack('<I7H', ARG, 1)
if told == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = told - 1
end

local stored = redis.call('MGET', spread(KEYS))
local states, kept, until_us, ours = {}, {}, {}, {}
for i, value in ipairs(stored) do
  if value then
    kept[i] = unpack('<I4', value, 1)
    states[i] = sub(value, 5)
  else
    kept[i], states[i] = 0, ''
  end
end

local reply = { now, '' }
local letters = {}

-- Is a state one of this law, as far as can be seen without reading all of it?
local function fits_law(t, s)
  if s == '' then
    return true
  end
  local law = t.law
  local list = #s - law.head
  if byte(s, 1) ~= law.tag or list < 0 then
    return false
  end
  if law == fixed then
    return list == 8
  elseif law == parted then
    return list == 4 * (t.k + 1)
  elseif law.item == 0 then
    return list == 0
  end
  return list % law.item == 0
end

-- Puts the state after a take where it is tried, if it is another; and says until when it has to be kept.
local function put(tried, t, s)
  local key = t.key
  if tried[key] ~= s then
    local until_when = t.at + t.ttl
    if t.law == places and #s > 12 then
      until_when = max(until_when, (unpack('<I7', s, #s - 10))) -- Held under a longer time to live than there is now.
    end
    tried[key], until_us[key] = s, max(until_us[key] or 0, until_when)
  elseif t.law == level and s ~= '' and t.amount > 0 and kept[key] * 1000000 < t.at + t.ttl then
    -- A bucket leaks slower since its limit was lowered: it may have to be kept longer than whoever wrote it knew.
    local empty_at = t.at + div_up(t.left, t.amount) * t.tick
    if kept[key] * 1000000 < empty_at then
      tried[key], until_us[key] = s, max(until_us[key] or 0, empty_at)
    end
  end
end

for r = 1, requests do
  local count
  count, at = unpack('<H', ARG, at)
  local takes, letter = {}, nil
  for i = 1, count do
    takes[i], at = read(at)
    if not fits_law(takes[i], states[takes[i].key]) then
      letter = 'f'
    elseif takes[i].law == spent and not spent.reaches(takes[i]) then
      letter = letter or 'c'
    end
  end
  if letter then
    for _ = 1, count do
      reply[#reply + 1] = false
    end
  else
    -- As if it were admitted, on states that are only tried.
    local tried = setmetatable({}, { __index = states })
    local enforced, any_quota, quota_passes = true, false, false
    local sums = {}
    for i = 1, count do
      local t = takes[i]
      reply[#reply + 1] = states[t.key]
      local outcome, s, applied = step(t, tried[t.key], true)
      put(tried, t, s)
      if t.law.list then
        sums[i] = summary(t, s, outcome, applied)
      end
      t.passes = outcome == ADMITTED
      if t.role == ENFORCE then
        enforced = enforced and t.passes
      elseif t.role == QUOTA then
        any_quota, quota_passes = true, quota_passes or t.passes
      end
    end
    if enforced and (quota_passes or not any_quota) then
      letter = 'a'
    else
      letter = 'r'
      tried = setmetatable({}, { __index = states })
      for i = 1, count do
        local t = takes[i]
        local outcome, s, applied = step(t, tried[t.key], t.stays)
        put(tried, t, s)
        if t.law.list and (t.stays or t.passes) then
          sums[i] = summary(t, s, outcome, applied)
        end
      end
    end
    for key, s in pairs(tried) do
      states[key] = s
      changed[key] = true
    end
    for i, sum in pairs(sums) do
      reply[#reply - count + i] = sum
    end
  end
  letters[r] = letter
end

for key in pairs(changed) do
  local until_s = div_up(until_us[key], 1000000)
  if kept[key] >= until_s then
    redis.call('SET', KEYS[key], pack('<I4', kept[key]) .. states[key], 'KEEPTTL')
  else
    -- Some more, so that those who come soon find it long enough.
    local ms = div_up(until_us[key] - now, 1000)
    ms = ms + div(ms, 4) + 5000
    local second = min(U32, div(now + ms * 1000, 1000000))
    redis.call('SET', KEYS[key], pack('<I4', second) .. states[key], 'PX', string.format('%.0f', ms))
  end
end

reply[2] = table.concat(letters)
return reply


-- Lists of items, oldest first, each with a time and units; `form` reads these two of an item of `size` bytes.

-- Shows items from byte `from` on to `each`, until it says to stop. Many are read at a time.
local function walk(s, from, size, form, each)
  while from <= #s do
    local n = min(32, (#s - from + 1) / size)
    local numbers = { unpack('<' .. string.rep(form, n), s, from) }
    for i = 1, 2 * n, 2 do
      if each(numbers[i], numbers[i + 1]) then
        return
      end
    end
    from = from + n * size
  end
end

-- Where the items begin that have not ended by `at`, and the units of those that have.
local function living(s, size, form, at, longer)
  local from, units = 17, 0
  walk(s, from, size, form, function(time, n)
    if time + longer > at then
      return true
    end
    from, units = from + size, units + n
  end)
  return from, units
end

-- What the node has to know of a list of which so much is used: when the cost fits (on a refusal; else when a unit does), when the last
-- item ends.
local function tell(s, from, size, form, longer, outcome, used, applied)
  local ready, latest, least = 0, 0, 1
  if outcome == LIMITED or outcome == EXCEEDS then
    least = max(1, cost)
  end
  if least <= capacity and used + least > capacity then
    local left = used
    walk(s, from, size, form, function(time, n)
      left, ready = left - n, time + longer
      return left + least <= capacity
    end)
  end
  if from <= #s then
    latest = unpack('<I7', s, #s - 10) + longer
  end
  told = pack('<BI5I5I7I7I7', outcome, used, applied + U32, own_time, ready, latest)
end

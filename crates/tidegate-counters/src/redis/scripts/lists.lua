
-- Lists of items, oldest first, each with a time and units; `form` reads these two of an item of `size` bytes.

-- Where the items begin that have not ended by `own`, and the units of those that have. Many are read at a time.
local function living(s, size, form, own, longer)
  local from, units = 17, 0
  while from <= #s do
    local n = min(32, (#s - from + 1) / size)
    local numbers = { unpack('<' .. string.rep(form, n), s, from) }
    for i = 1, 2 * n, 2 do
      if numbers[i] + longer > own then
        return from, units
      end
      from, units = from + size, units + numbers[i + 1]
    end
  end
  return from, units
end

-- When so many units more than now have room in a list of which `used` are in use, from byte `from` on; 0 if that is now or never.
local function ready(s, from, size, form, longer, used, least, capacity)
  while from <= #s and least <= capacity and used + least > capacity do
    local n = min(least == 1 and 1 or 32, (#s - from + 1) / size)
    local numbers = { unpack('<' .. string.rep(form, n), s, from) }
    for i = 1, 2 * n, 2 do
      used = used - numbers[i + 1]
      if used + least <= capacity then
        return numbers[i] + longer
      end
    end
    from = from + n * size
  end
  return 0
end

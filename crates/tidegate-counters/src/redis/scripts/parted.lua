
-- Aligned parts of a window; with one of them, the two-window counter.
if law == 2 then
  local k, width, tick, strict = unpack('<HI7I4B', ARG, params)
  local kept, tag, index = 0, 0x11, 0
  local ticks, width_us = floor(now / tick), width * tick
  local newest = floor(ticks / width)
  local offset = ticks - newest * width
  if s ~= '' then
    tag = 0
    if #s == 16 + 4 * k then
      kept, tag, index = unpack('<I4BI7', s, 1)
    end
    if index * width_us - ticks * tick > max(width_us * k, 5000000) then
      -- The next one to start: there the leaving part counts in full, so that a broken clock frees nothing.
      index = ceil(ticks * tick / width_us)
      s = pack('<I4BI7', kept, tag, index) .. sub(s, 13)
    end
  end
  if tag ~= 0x11 then
    outcome = FOREIGN
  else
    if newest < index then
      newest, offset = index, 0
    end
    own_time = (newest * width + offset) * tick
    local unseen = newest - index -- Parts since the last write: nothing was charged in them.
    local used, leaving, counts = 0, 0, nil
    if s ~= '' and unseen <= k then
      counts = { unpack('<' .. string.rep('I4', k + 1 - unseen), s, 13) }
      for part = 1, k - unseen do
        used = used + counts[part]
      end
      leaving = counts[k + 1 - unseen]
    end
    if strict == 1 then
      used = used + leaving
    else
      -- Where a lowered limit makes the product larger than doubles are exact for, twice the limit is used at least: refused, whatever
      -- the last digit is.
      used = used + ceil(leaving * (width - offset) / width)
    end
    local age = 0 -- Of the part that is charged, or given back to.
    if ask ~= REFUND then
      -- @judge
    elseif carry then
      age = of and newest - floor(of / width_us) or 0
      units = age >= 0 and age <= k and -cost or 0
    end
    if units ~= 0 then
      -- The newest in front; the oldest fall off.
      local rolled = string.rep('\0', 4 * (k + 1))
      if counts then
        rolled = string.rep('\0', 4 * unseen) .. sub(s, 13, 12 + 4 * (k + 1 - unseen))
      end
      local there = unpack('<I4', rolled, 4 * age + 1)
      units = max(units, -there)
      if units ~= 0 then
        rolled = sub(rolled, 1, 4 * age) .. pack('<I4', there + units) .. sub(rolled, 4 * age + 5)
        s = pack('<I4BI7', kept, tag, newest) .. rolled
      end
    end
  end
end

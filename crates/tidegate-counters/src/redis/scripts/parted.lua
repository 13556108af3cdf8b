
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

-- Aligned parts of a window; with one of them, the two-window counter.
LAWS[2] = function(s, carry)
  local k, width, tick, strict = unpack('<HI7I4B', ARG, params)
  local kept, tag, index = 0, 0x11, 0
  local ticks, width_us = div(now, tick), width * tick
  local newest = div(ticks, width)
  local offset = ticks - newest * width
  if s ~= '' then
    if #s ~= 16 + 4 * k then
      return FOREIGN
    end
    kept, tag, index = unpack('<I4BI7', s, 1)
    if tag ~= 0x11 then
      return FOREIGN
    end
    if index * width_us - ticks * tick > max(width_us * k, 5000000) then
      -- The next one to start: there the leaving part counts in full, so that a broken clock frees nothing.
      index = div_up(ticks * tick, width_us)
      s = pack('<I4BI7', kept, tag, index) .. sub(s, 13)
    end
  end
  if newest < index then
    newest, offset = index, 0
  end
  own_time = (newest * width + offset) * tick
  local unseen = newest - index -- Parts since the last write: nothing was charged in them.
  local whole, leaving = 0, 0
  if s ~= '' and unseen <= k then
    local counts = { unpack('<' .. string.rep('I4', k + 1 - unseen), s, 13) }
    for i = 1, k - unseen do
      whole = whole + counts[i]
    end
    leaving = counts[k + 1 - unseen]
  end
  if strict == 0 and leaving > 0 then
    leaving = mul_div_up(leaving, width - offset, width)
  end
  local age, units, outcome, given = 0, 0, ADMITTED, 0
  if ask == REFUND then
    if of then
      age = newest - div(of, width_us)
    end
    if not carry or age < 0 or age > k then
      return ADMITTED, s, 0
    end
  else
    outcome, units = judge(whole + leaving, carry)
    if units == 0 then
      return outcome, s, 0
    end
  end
  -- The newest in front; the oldest fall off.
  local rolled = min(unseen, k + 1)
  local counts = string.rep('\0', 4 * rolled)
  if s == '' then
    counts = string.rep('\0', 4 * (k + 1))
  elseif rolled <= k then
    counts = counts .. sub(s, 13, 12 + 4 * (k + 1 - rolled))
  end
  local there = unpack('<I4', counts, 4 * age + 1)
  if ask == REFUND then
    given = min(cost, there)
    if given == 0 then
      return ADMITTED, s, 0
    end
  end
  counts = sub(counts, 1, 4 * age) .. pack('<I4', there + units - given) .. sub(counts, 4 * age + 5)
  return outcome, pack('<I4BI7', kept, tag, newest) .. counts, units - given
end

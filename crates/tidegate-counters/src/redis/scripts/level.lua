
-- A level that leaks: token bucket, GCRA, leaky bucket. It is kept in units × window, and leaks by the limit's amount in a tick.
LAWS[3] = function(s, carry)
  local burst, window, exponent = unpack('<I4I7B', ARG, params)
  local tick = 10 ^ exponent
  local ticks = div(now, tick)
  local kept, tag, flags, left, last = 0, 0x12, 0, 0, 0
  local at, owed, most = ticks, false, min(2 * capacity, U32) * window
  if s ~= '' then
    if #s ~= 20 then
      return FOREIGN
    end
    kept, tag, flags, left, last = unpack('<I4BBI7I7', s, 1)
    if tag ~= 0x12 then
      return FOREIGN
    end
    local written = 10 ^ (flags % 8)
    if div(last, tick) * tick - ticks * tick > max(window * tick, 5000000) then
      last = ticks * tick
      s = pack('<I4BBI7I7', kept, tag, flags, left, last)
    end
    last = div(last, tick)
    at = max(ticks, last)
    if written > tick then
      left = left * (written / tick)
    elseif written < tick then
      left = div_up(left, tick / written)
    end
    left = min(left, most)
    owed = flags >= 128 or left > burst * window
    left = max(0, left - (at - last) * amount)
    owed = owed and left > 0
  end
  own_time = at * tick
  local used = div_up(left, window)
  local outcome, units = ADMITTED, 0
  if ask == REFUND then
    local fullest = burst * window
    if owed then
      fullest = most
    end
    -- A bucket does not remember when it was charged: units go back, unless they must have leaked since.
    if carry and not (of and max(0, at - div(of, tick)) * amount >= fullest) then
      units = -min(cost, used)
    end
  else
    outcome, units = judge(used, carry)
  end
  if units ~= 0 then
    left = max(0, left + units * window)
    if left > 0 and (owed or left > burst * window) then
      exponent = exponent + 128
    end
    return outcome, pack('<I4BBI7I7', kept, tag, exponent, left, at * tick), units
  end
  -- It leaks slower since its limit was lowered: it may have to be kept longer than whoever wrote it knew.
  if s ~= '' and amount > 0 and kept * 1000000 < own_time + ttl then
    if kept * 1000000 < own_time + div_up(left, amount) * tick then
      s = pack('<I4', 0) .. sub(s, 5)
    end
  end
  return outcome, s, 0
end

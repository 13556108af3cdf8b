
-- A level that leaks: token bucket, GCRA, leaky bucket. It is kept in units × window, and leaks by the limit's amount in a tick.
if law == 3 then
  local burst, window, exponent = unpack('<I4I7B', ARG, params)
  local tick = 10 ^ exponent
  local ticks = floor(now / tick)
  local kept, tag, flags, left, last = 0, 0x12, 0, 0, 0
  local own, owed, most = ticks, false, min(2 * capacity, U32) * window
  if s ~= '' then
    tag = 0
    if #s == 20 then
      kept, tag, flags, left, last = unpack('<I4BBI7I7', s, 1)
    end
    if floor(last / tick) * tick - ticks * tick > max(window * tick, 5000000) then
      last = ticks * tick
      s = pack('<I4BBI7I7', kept, tag, flags, left, last)
    end
    last = floor(last / tick)
    own = max(ticks, last)
    if flags % 8 ~= exponent then
      -- The tick changes with the limit's amount.
      local written = 10 ^ (flags % 8)
      left = written > tick and left * (written / tick) or ceil(left / (tick / written))
    end
    left = min(left, most)
    owed = flags >= 128 or left > burst * window
    left = max(0, left - (own - last) * amount)
    owed = owed and left > 0
  end
  own_time = own * tick
  local used = ceil(left / window)
  if tag ~= 0x12 then
    outcome = FOREIGN
  elseif ask == REFUND then
    -- A bucket does not remember when it was charged: units go back, unless they must have leaked since.
    local leaked = of and max(0, own - floor(of / tick)) * amount or 0
    if carry and not (of and leaked >= (owed and most or burst * window)) then
      units = -min(cost, used)
    end
  else
    -- @judge
  end
  if units ~= 0 then
    left = max(0, left + units * window)
    if left > 0 and (owed or left > burst * window) then
      exponent = exponent + 128
    end
    s = pack('<I4BBI7I7', kept, tag, exponent, left, own_time)
  elseif kept * 1000000 < own_time + ttl and s ~= '' and amount > 0 then
    -- It leaks slower since its limit was lowered: it may have to be kept longer than whoever wrote it knew, also in this call.
    longer = kept * 1000000 < own_time + ceil(left / amount) * tick
  end
end

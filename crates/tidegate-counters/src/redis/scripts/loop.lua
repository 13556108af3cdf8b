
local values
if #KEYS == 1 then
  values = { redis.call('GET', KEYS[1]) }
else
  values = redis.call('MGET', spread(KEYS))
end

local reply, letters, n = { now, '' }, '', 2
local plain -- Values that are numbers, and how long they are kept.
local lapsed, lapsing = 0, 0 -- Units of places that have expired and are forgotten: in all requests, and in this one.
local until_us = {} -- The values to be written, and until when they have to be kept.

for _ = 1, requests do
  local count, next_request, start = unpack('<HI4', ARG, at)
  next_request = at + next_request
  local letter, enforced, any_quota, quota_passes = nil, true, false, false
  -- Of several takes: values that are only tried, until when they have to be kept, and who passes. A single take does what a refusal does.
  local tried, tried_until, passes
  local pass = 1 -- As if it were admitted; if it is not, once more.
  repeat
    if count > 1 then
      tried, tried_until, passes = {}, {}, passes or {}
    end
    at, lapsing = start, 0
    for i = 1, count do
      -- The take: which counter, what is asked, how much of it, the limit's numbers, how long a state matters at most (µs), where the
      -- numbers of its law stand; its role, whether refusals are charged, whether it stays in a refused request, of which charge it gives back.
      local size, key, ask, flags, law, cost, amount, capacity, ttl, params = unpack('<BHBBBI6I4I4I7', ARG, at)
      local role, always, stays, of = flags % 4, flags % 8 >= 4, flags % 16 >= 8, nil
      if flags >= 16 then
        of, params = unpack('<I7', ARG, params)
      end
      at = at + size
      local carry = pass == 1 or stays
      local before = values[key] or ''
      local value = tried and tried[key] or before
      -- A block sets these: the value after the take, what comes of it, the units that are charged (or given back, below zero), the
      -- counter's own time (µs), what is told of a list, whether it has to be kept longer. A time that only a broken clock can have
      -- written is set right in any case.
      local s, outcome, units, own_time, told, longer = value, ADMITTED, 0, now, nil, false

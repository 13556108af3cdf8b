
local floor, format = math.floor, string.format
local law, role, stays

-- Reads a take; says where the next one stands.
local function read(at)
  local size, flags
  size, key, ask, flags, law, cost, amount, capacity, ttl, params = unpack('<BHBBBI6I4I4I7', ARG, at)
  role, always, stays, of = flags % 4, flags % 8 >= 4, flags % 16 >= 8, nil
  if flags >= 16 then
    of, params = unpack('<I7', ARG, params)
  end
  told = nil
  return at + size
end

-- Writes a value that has to be kept until some time.
local function write(name, value, until_when)
  if unpack('<I4', value, 1) * 1000000 >= until_when then
    redis.call('SET', name, value, 'KEEPTTL')
  else
    -- A quarter and some seconds more, so that those who come soon find it long enough.
    local ms = floor((until_when - now) / 800) + 5001
    local second = min(U32, floor((now + ms * 1000) / 1000000))
    redis.call('SET', name, pack('<I4', second) .. sub(value, 5), 'PX', format('%.0f', ms))
  end
end

local given_time, requests, at = unpack('<I7H', ARG, 1)
if given_time == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = given_time - 1
end

-- Most calls are one take. It needs none of the rest.
local first_count = unpack('<H', ARG, at)
if requests == 1 and first_count == 1 then
  read(at + 6)
  local before = redis.call('GET', KEYS[1]) or ''
  local outcome, after = LAWS[law](before, true)
  if outcome >= FOREIGN then
    return { now, outcome == FOREIGN and 'f' or 'c', false }
  end
  if after ~= before then
    write(KEYS[1], after, own_time + ttl)
  end
  return { now, (outcome == ADMITTED or role == 1) and 'a' or 'r', told or before }
end

local values = redis.call('MGET', spread(KEYS))
local reply, letters, n = { now, '' }, {}, 2
local until_us, dirty = {}, {} -- Until when values have to be kept; which are to be written.

for r = 1, requests do
  local count, start, next_request
  count, next_request, start = unpack('<HI4', ARG, at)
  next_request = at + next_request
  -- As if it were admitted, on values that are only tried.
  local tried, passes, letter = {}, {}, nil
  local enforced, any_quota, quota_passes = true, false, false
  at = start
  for i = 1, count do
    local next_take = read(at)
    local before = values[key] or ''
    local value = tried[key] or before
    local outcome, after = LAWS[law](value, true)
    if outcome >= FOREIGN then
      letter = outcome == FOREIGN and 'f' or 'c'
      break
    end
    if after ~= value then
      tried[key], until_us[key] = after, max(until_us[key] or 0, own_time + ttl)
    end
    reply[n + i] = told or before
    passes[i] = outcome == ADMITTED
    if role == 0 then
      enforced = enforced and passes[i]
    elseif role == 2 then
      any_quota, quota_passes = true, quota_passes or passes[i]
    end
    at = next_take
  end
  if letter then
    tried = {}
    for i = 1, count do
      reply[n + i] = false
    end
  elseif enforced and (quota_passes or not any_quota) then
    letter = 'a'
  else
    letter = 'r'
    if count > 1 then -- A single take has done what a refusal does.
      tried, at = {}, start
      for i = 1, count do
        local next_take = read(at)
        local value = tried[key] or values[key] or ''
        local _, after = LAWS[law](value, stays)
        if after ~= value then
          tried[key], until_us[key] = after, max(until_us[key] or 0, own_time + ttl)
        end
        if told and (stays or passes[i]) then
          reply[n + i] = told
        end
        at = next_take
      end
    end
  end
  for number, value in pairs(tried) do
    values[number], dirty[number] = value, true
  end
  letters[r], n, at = letter, n + count, next_request
end

for number in pairs(dirty) do
  write(KEYS[number], values[number], until_us[number])
end

reply[2] = table.concat(letters)
return reply

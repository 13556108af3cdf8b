-- The time, µs, and counters as they are. Touches nothing.
--
-- KEYS     the counters.
-- ARGV[1]  the time to go by and one more, or 0 for the store's own, in seven bytes, least first.
local now = struct.unpack('<I7', ARGV[1], 1) - 1
if now < 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local reply = { now }
for i, value in ipairs(redis.call('MGET', unpack(KEYS))) do
  reply[i + 1] = value and string.sub(value, 5) or ''
end
return reply

-- Who shares the store: says that a node is there, and tells how many are.
--
-- KEYS[1]  those that were here lately: eight bytes of an id, then the second at which it came last, in four.
-- ARGV[1]  the id of the node, eight bytes; then for how many seconds it counts, and how many there may be, in four bytes each.
local id, lives, most = struct.unpack('<c8I4I4', ARGV[1])
local now = tonumber(redis.call('TIME')[1])
local known = redis.call('GET', KEYS[1]) or ''
local kept, count = { id .. struct.pack('<I4', now) }, 1
for at = 1, #known - #known % 12, 12 do
  local other, seen = struct.unpack('<c8I4', known, at)
  -- Also not from the future: a clock may have been set back.
  if other ~= id and math.abs(now - seen) < lives and count < most then
    count = count + 1
    kept[count] = string.sub(known, at, at + 11)
  end
end
redis.call('SET', KEYS[1], table.concat(kept), 'PX', lives * 1000)
return count

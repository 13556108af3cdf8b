-- Judges requests and carries them out, in order, each in one piece: admitted, every take that passes is charged; refused, only what stays
-- in any case is. The same law as tidegate-core's, on the same portable states (docs/counters.md), in the same integers: every number here
-- is below 2^53, where doubles are exact, and so are the floor and the ceiling of their quotients.
--
-- A script is this file, the blocks of the laws that its requests need, and tail.lua; `-- @judge` stands for judge.lua. It has no function
-- where it can do without: whatever is defined here is defined anew in every call, and a function costs as much as a step of a law.
--
-- KEYS     the counters.
-- ARGV[1]  the requests, packed: encode.rs writes field by field what is read here.
--
-- Answers: the time by which was judged, µs; a letter for each request (a admitted, r refused, f a state that is not ours, c the node's
-- calendar does not reach the store's time); then for each take its counter as it was before its request or, where that is a list, what
-- the node has to know of it; last, where there are any, the units of places that had expired and are forgotten. The node works out all
-- other numbers from that, by the law itself (replay.rs).
--
-- A value is the second until which the store keeps it (4 bytes), then the portable state. While that covers the time to reset it is
-- written with KEEPTTL, which is cheaper than a new time to live.

local spread = unpack -- Before its name is taken.
local pack, unpack, sub, byte = struct.pack, struct.unpack, string.sub, string.byte
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max
local ARG, U32 = ARGV[1], 4294967295

local LOOK, REFUND, FORCE, ACQUIRE, RENEW, RELEASE = 2, 3, 4, 5, 6, 7 -- What is asked; before them: 0 peek, 1 charge.
local ADMITTED, LIMITED, EXCEEDS, NOT_HELD, FOREIGN, NO_PERIOD = 0, 1, 2, 3, 4, 5 -- What comes of it.

local now, requests, at = unpack('<I7H', ARG, 1)
if now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now - 1
end

-- Judges requests and carries them out, in order, each in one piece: admitted, every take that passes is charged; refused, only what stays
-- in any case is. The same law as tidegate-core's, on the same portable states (docs/counters.md), in the same integers: every number here
-- is below 2^53, where doubles are exact.
--
-- A script is this file, the laws that its requests need, and tail.lua: whatever is defined here is defined anew in every call, and that
-- is most of what a call costs. So the take that is judged is not handed round: it stands in these variables.
--
-- KEYS     the counters.
-- ARGV[1]  the requests, packed: encode.rs writes field by field what is read here.
--
-- Answers: the time by which was judged, µs; a letter for each request (a admitted, r refused, f a state that is not ours, c the node's
-- calendar does not reach the store's time); then for each take its counter as it was before its request or, where that is a list, what
-- the node has to know of it. The node works out all other numbers from that, by the law itself (replay.rs).
--
-- A value is the second until which the store keeps it (4 bytes), then the portable state. While that covers the time to reset it is
-- written with KEEPTTL, which is cheaper than a new time to live.

local spread = unpack -- Before its name is taken.
local pack, unpack, sub = struct.pack, struct.unpack, string.sub
local fmod, min, max = math.fmod, math.min, math.max
local ARG, U32 = ARGV[1], 4294967295

local now -- µs
-- The take: which counter, what is asked, how much of it, the limit's numbers, how long a state matters at most (µs); of which charge
-- something is given back, whether refusals are charged, and where the numbers of its law stand.
local key, ask, cost, amount, capacity, ttl, of, always, params
-- The counter's own time, µs; and what is told of a list.
local own_time, told

local LOOK, REFUND, FORCE, ACQUIRE, RENEW, RELEASE = 2, 3, 4, 5, 6, 7 -- Before them: 0 peek, 1 charge.
local ADMITTED, LIMITED, EXCEEDS, NOT_HELD, FOREIGN, NO_PERIOD = 0, 1, 2, 3, 4, 5

-- ⌊a / b⌋. A quotient of doubles may be rounded up across an integer; a remainder is exact.
local function div(a, b)
  return (a - fmod(a, b)) / b
end

local function div_up(a, b)
  local r = fmod(a, b)
  if r == 0 then
    return a / b
  end
  return (a - r) / b + 1
end

-- What the take comes to where so much is used, and how many units are to be charged if it is to be carried out.
local function judge(used, carry)
  local outcome = ADMITTED
  if ask == LOOK then
    return outcome, 0
  end
  if ask ~= FORCE then
    local least = max(1, cost)
    if capacity == 0 then
      outcome = LIMITED
    elseif least > capacity then
      outcome = EXCEEDS
    elseif used + least > capacity then
      outcome = LIMITED
    end
  end
  if not carry or cost == 0 then
    return outcome, 0
  elseif ask == FORCE or (always and outcome ~= ADMITTED) then
    -- Up to a debt of one limit, and what 32 bits hold.
    return outcome, min(cost, max(0, min(2 * capacity, U32) - used))
  elseif outcome == ADMITTED then
    return outcome, cost
  end
  return outcome, 0
end

-- Each law judges the take on a value ('' if there is none) and, if `carry`, carries it out. Gives the outcome, the value, and the units
-- that were charged (or given back, below zero). A time that only a broken clock can have written is set right in any case.
local LAWS = {}

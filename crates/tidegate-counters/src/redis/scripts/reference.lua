
-- A fixed window as envoyproxy/ratelimit keeps it: a number, under a name that says which window it is. Whose clock it is by, the node says.
if law == 8 then
  -- A number as both write it, which doubles are exact for: elsewhere Lua reads 0x10, 1e3, -5 and nan too.
  local used = s == '' and 0 or #s < 16 and not string.find(s, '%D') and tonumber(s)
  if not used then
    outcome = FOREIGN
  else
    if ask ~= REFUND then
      -- @judge
    elseif carry then
      units = -min(cost, used)
    end
    if units ~= 0 then
      s = string.format('%.0f', used + units)
      plain = plain or {}
      plain[key] = unpack('<I4', ARG, params) -- How long it is kept, in seconds.
    end
  end
end

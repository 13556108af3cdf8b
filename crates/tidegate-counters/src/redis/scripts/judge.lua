if ask ~= LOOK then
  local least = max(1, cost)
  if ask ~= FORCE and used + least > capacity then
    outcome = LIMITED
    if least > capacity and capacity > 0 then
      outcome = EXCEEDS
    end
  end
  if carry and cost > 0 then
    if ask == FORCE or (always and outcome ~= ADMITTED) then
      units = min(cost, max(0, min(2 * capacity, U32) - used)) -- Up to a debt of one limit, and what 32 bits hold.
    elseif outcome == ADMITTED then
      units = cost
    end
  end
end

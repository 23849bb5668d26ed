-- Sliding window log: the twin of gateway.limits.sliding_log.
--
-- decide     max_wait, queue, window, count, counts_refused, debt
-- reply      allowed, used, last, turn: for a debit, when nothing is owed any more
-- give back  turn
--
-- The state is a list of times.

local function look(key, at, cost)
  local max_wait, queue = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local window, capacity = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local counts_refused, debt = ARGV[at + 4] == '1', tonumber(ARGV[at + 5])
  local furthest = now + queue
  local length = pcall('LLEN', key)
  local is_foreign = type(length) ~= 'number'
  if is_foreign then
    length = 0
  end
  local expired = count_before(key, 0, length, now - window)
  local ahead = count_after(key, length, furthest)
  local used, last, turn = length - expired, 0, now
  local surplus = used + cost - capacity
  if used > 0 then
    last = min(tonumber(call('LINDEX', key, -1)) or 0, furthest)
    if cost > 0 and cost <= capacity then
      if surplus > 0 then
        local leaves = tonumber(call('LINDEX', key, expired + surplus - 1)) or 0
        turn = min(leaves, furthest) + window + 1
      end
      turn = max(turn, last)
    end
  end
  local allowed = cost == 0 or (cost <= capacity and turn - now <= max_wait)
  local surplus_kept, counted, placed = 0, cost, nil
  if max_wait < 0 then
    allowed, counted, placed = true, max(min(cost, capacity + debt - used), 0), max(now, last)
    turn = now
    local over = used + counted - capacity
    if over > 0 then
      local leaves = placed
      if over <= used then
        leaves = min(tonumber(call('LINDEX', key, expired + over - 1)) or 0, furthest)
      end
      turn = leaves + window + 1
    end
  end
  if not allowed and cost <= capacity and counts_refused then
    -- As refuse leaves it: the newest of the old ones, and this one once per unit of its cost.
    -- A debt does not reduce it.
    local kept = min(used + cost, max(capacity, min(used, capacity + debt)))
    surplus_kept = used + cost - kept
    used, last = kept, now
    local leaves = surplus_kept + used + cost - capacity
    turn = now
    if leaves <= length - expired then
      turn = tonumber(call('LINDEX', key, expired + leaves - 1)) or 0
    end
    turn = min(turn, furthest) + window + 1
  end
  local n = #reply
  reply[n + 1], reply[n + 2] = allowed and 1 or 0, used
  reply[n + 3], reply[n + 4] = last, turn
  return {key = key, allowed = allowed, is_foreign = is_foreign, length = length,
    expired = expired, ahead = ahead, furthest = furthest, last = last, turn = placed or turn,
    window = window, counts = counts_refused and cost <= capacity, surplus = surplus_kept,
    counted = counted}, at + 6
end

-- Drops expired times, and limits times that are too far ahead after the clock went back.
local function put_right(seen)
  if seen.expired > 0 then
    call('LTRIM', seen.key, seen.expired, -1)
  end
  if seen.ahead > 0 then
    call('LTRIM', seen.key, 0, -seen.ahead - 1)
    push(seen.key, seen.furthest, seen.ahead)
  end
end

local function spend(seen)
  if seen.is_foreign then
    call('DEL', seen.key)
  end
  put_right(seen)
  push(seen.key, seen.turn, seen.counted)
  call('PEXPIRE', seen.key, ttl_ms(seen.turn + seen.window + 1))
end

local function refuse(seen, cost)
  if seen.length > 0 then
    put_right(seen)
    if seen.counts then
      push(seen.key, now, cost)
      call('LTRIM', seen.key, seen.surplus, -1)
      call('PEXPIRE', seen.key, ttl_ms(now + seen.window + 1))
    elseif seen.ahead > 0 then
      call('PEXPIRE', seen.key, ttl_ms(seen.last + seen.window + 1))
    else
      see_to_ttl(seen.key, seen.last + seen.window + 1)
    end
  end
end

local function give_back(key, at, cost)
  -- From the tail, which has the waiting ones. Equal times are interchangeable.
  local removed = pcall('LREM', key, format('%.0f', -cost), ARGV[at])
  return type(removed) == 'number' and removed > 0 and 1 or 0, at + 1
end

return {look = look, spend = spend, refuse = refuse, give_back = give_back}

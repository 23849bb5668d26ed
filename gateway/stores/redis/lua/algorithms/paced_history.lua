-- Paced history: the twin of gateway.limits.paced_history.
--
-- decide     max_wait, queue, burst, window, interval
--            queue: plus the allowed debt, as time
-- give back  window, receipt
--
-- The state is a list: the latest dropped time, or 0, followed by the times.

local function look(key, at, cost)
  local max_wait, queue = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local burst, window, interval =
    tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local oldest, furthest = now - window, now + queue
  local length = pcall('LLEN', key)
  local is_foreign = type(length) ~= 'number'
  local count = is_foreign and 0 or max(length - 1, 0)
  local ahead = count_after(key, count, furthest)
  local first = 1 + count_before(key, 1, count, oldest)
  local function time(i)
    return min(tonumber(call('LINDEX', key, first + i - 1)) or 0, furthest)
  end
  local head = count > 0 and tonumber(call('LINDEX', key, 0)) or 0
  local dropped, kept = min(head, furthest), count - first + 1
  if dropped < oldest then
    dropped = 0
  end
  if kept > burst then
    local excess = kept - burst
    dropped, first, kept = time(excess), first + excess, burst
  end
  local newest = kept > 0 and time(kept) or 0
  local lacking = kept + cost - burst
  local wait, retry_after, receipt, turn = 0, 0, 0, now
  local kept_after, newest_after = kept, newest
  if max_wait < 0 then
    if lacking > 0 then
      turn = min(max(now, newest) + lacking * interval, furthest)
    end
    kept_after = min(kept + cost, burst)
    if cost > 0 then
      newest_after = max(newest, turn)
    end
    wait = max(newest_after - now, 0)
    receipt = cost > 0 and now + wait or 0
  elseif cost > burst then
    retry_after = -1
  elseif cost > 0 then
    if lacking > 0 then
      turn = max(now, newest) + lacking * interval
    end
    if turn - now <= max_wait then
      wait, receipt = turn - now, turn
      kept_after, newest_after = min(kept + cost, burst), max(newest, turn)
    else
      -- When enough times have left the window for the rest to be waited for; or sooner, when
      -- the newest is long enough ago.
      local passes = time(lacking) + window + 1
      for still = 1, min(lacking, floor(max_wait / interval)) do
        local left = now
        if still < lacking then
          left = time(lacking - still) + window + 1
        end
        passes = min(passes, max(left, newest + still * interval - max_wait))
      end
      retry_after = passes - now
    end
  end
  answer(retry_after == 0, wait, retry_after, burst - kept_after,
    kept_after > 0 and newest_after + window + 1 - now or 0, receipt)
  return {key = key, allowed = retry_after == 0, is_foreign = is_foreign, count = count,
    ahead = ahead, furthest = furthest, first = first, kept = kept, head = head,
    dropped = dropped, newest = newest, turn = turn, burst = burst, window = window}, at + 5
end

-- Drops times that have left the window, and limits times that are too far ahead after the clock
-- went back.
local function put_right(seen)
  local key = seen.key
  if seen.ahead > 0 then
    call('LTRIM', key, 0, -seen.ahead - 1)
    push(key, seen.furthest, seen.ahead)
  end
  if seen.first > 1 then
    call('LTRIM', key, seen.first - 1, -1)
  end
  if seen.first > 1 or seen.head ~= seen.dropped then
    call('LSET', key, 0, format('%.0f', seen.dropped))
  end
end

local function spend(seen, cost)
  local key = seen.key
  if seen.count == 0 then
    call('DEL', key)
    push(key, 0, 1)
  else
    put_right(seen)
  end
  local behind = count_after(key, seen.kept, seen.turn)
  local later = {}
  if behind > 0 then
    later = call('LRANGE', key, -behind, -1)
    call('LTRIM', key, 0, -behind - 1)
  end
  cost = min(cost, seen.burst)
  push(key, seen.turn, cost)
  for _, time in ipairs(later) do
    call('RPUSH', key, time)
  end
  local excess = seen.kept + cost - seen.burst
  if excess > 0 then
    -- The last dropped time is the latest dropped, and is already in its place.
    call('LTRIM', key, excess, -1)
  end
  call('PEXPIRE', key, ttl_ms(max(seen.newest, seen.turn) + seen.window + 1))
end

local function refuse(seen)
  if seen.count == 0 then
    return
  end
  if seen.kept == 0 then
    call('DEL', seen.key)
    return
  end
  put_right(seen)
  see_to_ttl(seen.key, seen.newest + seen.window + 1)
end

local function give_back(key, at, cost)
  local window, receipt = tonumber(ARGV[at]), ARGV[at + 1]
  local length = pcall('LLEN', key)
  if type(length) ~= 'number' or length < 2 then
    return 0, at + 2
  end
  local dropped = call('LPOP', key)
  local removed = call('LREM', key, format('%.0f', -cost), receipt)
  if (tonumber(dropped) or 0) >= now - window then
    for _ = 1, removed do
      call('LPUSH', key, dropped)
    end
  end
  local newest = call('LINDEX', key, -1)
  if newest then
    local ends = (tonumber(newest) or 0) + window + 1
    call('LPUSH', key, dropped)
    if ends > now then
      call('PEXPIRE', key, ttl_ms(ends))
    else
      call('DEL', key)
    end
  end
  return removed > 0 and 1 or 0, at + 2
end

return {look = look, spend = spend, refuse = refuse, give_back = give_back}

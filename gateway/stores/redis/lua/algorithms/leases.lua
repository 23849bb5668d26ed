-- Concurrency: the twin of gateway.limits.leases.
--
-- decide     period, count
-- give back  receipt
-- renew      period, receipt
--
-- The state is a sorted set: `id:cost` by expiry for every lease, and below all of them, as
-- negative scores, `last`, the highest id so far, and `used`, the cost of all leases.

local function cost_of(lease)
  return tonumber(lease:match(':(%d+)$')) or 0
end

local function used_and_last(key)
  local used, last = pcall('ZSCORE', key, 'used'), pcall('ZSCORE', key, 'last')
  return -(type(used) == 'string' and tonumber(used) or 0),
    -(type(last) == 'string' and tonumber(last) or 0)
end

-- Returns the expiry of the lease that expires last; 0 if there is none.
local function latest(key)
  local top = call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
  return top[2] and max(tonumber(top[2]), 0) or 0
end

-- Returns when leases of the missing cost have expired.
local function free_at(key, lacking, furthest)
  local first = 0
  while true do
    local some = call('ZRANGEBYSCORE', key, '(' .. format('%.0f', now), '+inf', 'WITHSCORES',
      'LIMIT', first, CHUNK)
    for i = 1, #some, 2 do
      lacking = lacking - cost_of(some[i])
      if lacking <= 0 then
        return min(tonumber(some[i + 1]), furthest)
      end
    end
    if #some == 0 then
      return furthest
    end
    first = first + CHUNK
  end
end

local function look(key, at, cost)
  local period, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local is_foreign = type(pcall('ZCARD', key)) ~= 'number'
  local furthest = now + period
  local used, last, expired, reset = 0, 0, {}, 0
  if not is_foreign then
    used, last = used_and_last(key)
    expired = call('ZRANGEBYSCORE', key, 0, format('%.0f', now))
    for _, lease in ipairs(expired) do
      used = used - cost_of(lease)
    end
    if used > 0 then
      reset = min(latest(key), furthest) - now
    end
  end
  local retry_after, receipt = 0, 0
  local held, lacking = used, used + cost - count
  if cost > count then
    retry_after = -1
  elseif cost > 0 and lacking > 0 then
    retry_after = free_at(key, lacking, furthest) - now
  elseif cost > 0 then
    receipt = max(now, last + 1)
    used = used + cost
    reset = period
  end
  answer(retry_after == 0, 0, retry_after, max(count - used, 0), reset, receipt)
  return {key = key, allowed = retry_after == 0, is_foreign = is_foreign, held = held,
    last = last, used = used, receipt = receipt, furthest = furthest, expired = #expired},
    at + 2
end

-- Sets the expiry of a state to that of its last lease, and deletes an empty state.
local function finish(key, last)
  local ends = max(last + 1, latest(key))
  if ends <= now then
    call('DEL', key)
  else
    call('PEXPIRE', key, ttl_ms(ends))
  end
end

-- Drops expired leases, and limits those that are too far ahead after the clock went back.
local function put_right(seen)
  local key, furthest = seen.key, format('%.0f', seen.furthest)
  if seen.expired > 0 then
    call('ZREMRANGEBYSCORE', key, 0, format('%.0f', now))
    call('ZADD', key, format('%.0f', -seen.held), 'used')
  end
  for _, lease in ipairs(call('ZRANGEBYSCORE', key, '(' .. furthest, '+inf')) do
    call('ZADD', key, furthest, lease)
  end
end

local function spend(seen, cost)
  local key = seen.key
  if seen.is_foreign then
    call('DEL', key)
  else
    put_right(seen)
  end
  local lease = format('%.0f:%.0f', seen.receipt, cost)
  call('ZADD', key, format('%.0f', seen.furthest), lease,
    format('%.0f', -seen.used), 'used', format('%.0f', -seen.receipt), 'last')
  finish(key, seen.receipt)
end

local function refuse(seen)
  if not seen.is_foreign and call('EXISTS', seen.key) == 1 then
    put_right(seen)
    finish(seen.key, seen.last)
  end
end

local function give_back(key, at, cost)
  local removed = pcall('ZREM', key, ARGV[at] .. ':' .. format('%.0f', cost))
  if type(removed) ~= 'number' or removed == 0 then
    return 0, at + 1
  end
  local used, last = used_and_last(key)
  call('ZADD', key, format('%.0f', cost - used), 'used')
  finish(key, last)
  return 1, at + 1
end

local function renew(key, at, cost)
  local period = tonumber(ARGV[at])
  local lease = ARGV[at + 1] .. ':' .. format('%.0f', cost)
  local expires = pcall('ZSCORE', key, lease)
  if type(expires) ~= 'string' or tonumber(expires) <= now then
    return 0, at + 2
  end
  call('ZADD', key, format('%.0f', now + period), lease)
  finish(key, select(2, used_and_last(key)))
  return 1, at + 2
end

return {look = look, spend = spend, refuse = refuse, give_back = give_back, renew = renew}

-- Decides on a batch of asks: the twin of gateway.limits.token_bucket and sliding_log.
--
-- KEYS   the key of every limit of every ask, in order
-- ARGV   now      microseconds; 0 means the server's own time (only tests give another)
--        late     the batch spends nothing if the server's time is past this; 0: no bound
--        then for each ask: how many limits, its cost, and for each limit
--          token bucket        1, max_wait, queue, inc_us, inc_ns, tol_us, tol_ns
--          sliding window log  2, max_wait, queue, window, capacity
--        inc: what the ask takes, in time; negative if it is more than the limit holds
--        queue: the limit's own longest wait; max_wait: what this ask would wait
-- reply  now, and unless the batch came too late for each limit
--          token bucket        allowed, state_us, state_ns   (before anything was spent)
--          sliding window log  allowed, used, last, turn
--
-- A Lua number holds integers exactly up to 2^53, which is the year 2255 in microseconds but
-- only 104 days in nanoseconds. So a time is a pair here: microseconds and the nanoseconds
-- (0..999) on top. Stored, it is the decimal digits of the one after those of the other: the
-- integer of nanoseconds that the Python original keeps.

local call, pcall, tonumber, format = redis.call, redis.pcall, tonumber, string.format
local floor, min = math.floor, math.min
local CHUNK = 128

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local late = tonumber(ARGV[2])
local reply = {now}
if late > 0 and now > late then
  return reply
end

-- Milliseconds for a key that matters until `ends`. The server's clock for expiry counts
-- whole milliseconds, rounded down: one more, or a key could go before its time.
local function ttl_ms(ends)
  return format('%.0f', math.max(floor((ends - now) / 1000) + 2, 1))
end

-- A refusal writes nothing, so it must see to it that what is there will end: a key may have
-- no TTL (restored, written by hand), or one from when its limit was shorter.
local function see_to_ttl(key, ends)
  local ttl = call('PTTL', key)
  if ttl ~= -2 and ttl * 1000 < ends - now then
    call('PEXPIRE', key, ttl_ms(ends))
  end
end

local function is_after(us, ns, other_us, other_ns)
  return us > other_us or (us == other_us and ns > other_ns)
end

local function store_bucket(key, us, ns)
  call('SET', key, format('%.0f%03.0f', us, ns), 'PX', ttl_ms(us + 1))
end

local function look_at_bucket(key, at)
  local max_wait, queue = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local inc_us, inc_ns = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local tol_us, tol_ns = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local us, ns, is_known, is_ahead = now, 0, false, false
  -- Anything that is not a state (another type, other text) is as good as none.
  local text = pcall('GET', key)
  if type(text) == 'string' and text:find('^%d%d%d%d+$') then
    is_known = true
    local state_us, state_ns = tonumber(text:sub(1, -4)), tonumber(text:sub(-3))
    if state_us >= now then
      local furthest_us = now + tol_us + queue
      is_ahead = is_after(state_us, state_ns, furthest_us, tol_ns)
      if is_ahead then
        us, ns = furthest_us, tol_ns
      else
        us, ns = state_us, state_ns
      end
    end
  end
  local after_us, after_ns = us + inc_us, ns + inc_ns
  if after_ns >= 1000 then
    after_us, after_ns = after_us + 1, after_ns - 1000
  end
  local takes_nothing = inc_us == 0 and inc_ns == 0
  local allowed = inc_us >= 0
    and (takes_nothing or not is_after(after_us, after_ns, now + tol_us + max_wait, tol_ns))
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = allowed and 1 or 0, us, ns
  return {key = key, allowed = allowed, us = us, ns = ns, after_us = after_us,
    after_ns = after_ns, is_known = is_known, is_ahead = is_ahead}
end

local function spend_bucket(seen)
  store_bucket(seen.key, seen.after_us, seen.after_ns)
end

local function refuse_bucket(seen)
  if seen.is_ahead then
    store_bucket(seen.key, seen.us, seen.ns)
  elseif seen.is_known then
    see_to_ttl(seen.key, seen.us)
  end
end

-- How many times at the head of the log, which is ascending, are before `moment`.
local function count_before(key, length, moment)
  local counted = 0
  if length == 0 or (tonumber(call('LINDEX', key, 0)) or 0) >= moment then
    return 0
  end
  while counted < length do
    local times = call('LRANGE', key, counted, counted + CHUNK - 1)
    for i = 1, #times do
      if (tonumber(times[i]) or 0) >= moment then
        return counted + i - 1
      end
    end
    counted = counted + #times
  end
  return counted
end

-- How many times at the tail of the log are after `moment`.
local function count_after(key, length, moment)
  if length == 0 or (tonumber(call('LINDEX', key, -1)) or 0) <= moment then
    return 0
  end
  local rest = length
  while rest > 0 do
    local first = math.max(rest - CHUNK, 0)
    local times = call('LRANGE', key, first, rest - 1)
    for i = #times, 1, -1 do
      if (tonumber(times[i]) or 0) <= moment then
        return length - first - i
      end
    end
    rest = first
  end
  return length
end

local function push(key, time, count)
  local text = format('%.0f', time)
  while count > 0 do
    local times = {}
    for i = 1, min(count, CHUNK) do
      times[i] = text
    end
    call('RPUSH', key, unpack(times))
    count = count - #times
  end
end

local function look_at_log(key, at, cost)
  local max_wait, queue = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local window, capacity = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local furthest = now + queue
  local length = pcall('LLEN', key)
  local is_foreign = type(length) ~= 'number'
  if is_foreign then
    length = 0
  end
  local expired = count_before(key, length, now - window)
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
      turn = math.max(turn, last)
    end
  end
  local allowed = cost == 0 or (cost <= capacity and turn - now <= max_wait)
  local n = #reply
  reply[n + 1], reply[n + 2] = allowed and 1 or 0, used
  reply[n + 3], reply[n + 4] = last, turn
  return {key = key, allowed = allowed, is_log = true, is_foreign = is_foreign,
    length = length, expired = expired, ahead = ahead, furthest = furthest,
    last = last, turn = turn, window = window}
end

-- Forget the expired, and bring what a clock that went back left too far ahead within reach.
local function put_right(seen)
  if seen.expired > 0 then
    call('LTRIM', seen.key, seen.expired, -1)
  end
  if seen.ahead > 0 then
    call('LTRIM', seen.key, 0, -seen.ahead - 1)
    push(seen.key, seen.furthest, seen.ahead)
  end
end

local function spend_log(seen, cost)
  if seen.is_foreign then
    call('DEL', seen.key)
  end
  put_right(seen)
  push(seen.key, seen.turn, cost)
  call('PEXPIRE', seen.key, ttl_ms(seen.turn + seen.window + 1))
end

local function refuse_log(seen)
  if seen.length > 0 then
    put_right(seen)
    if seen.ahead > 0 then
      call('PEXPIRE', seen.key, ttl_ms(seen.last + seen.window + 1))
    else
      see_to_ttl(seen.key, seen.last + seen.window + 1)
    end
  end
end

local at, next_key = 3, 1
while ARGV[at] do
  local limits, cost = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  at = at + 2
  local looks, all_allowed = {}, true
  for i = 1, limits do
    local key = KEYS[next_key]
    next_key = next_key + 1
    if ARGV[at] == '1' then
      looks[i] = look_at_bucket(key, at + 1)
      at = at + 7
    else
      looks[i] = look_at_log(key, at + 1, cost)
      at = at + 5
    end
    all_allowed = all_allowed and looks[i].allowed
  end
  for i = 1, limits do
    local seen = looks[i]
    if all_allowed and cost > 0 then
      if seen.is_log then spend_log(seen, cost) else spend_bucket(seen) end
    elseif not seen.allowed then
      if seen.is_log then refuse_log(seen) else refuse_bucket(seen) end
    end
  end
end
return reply

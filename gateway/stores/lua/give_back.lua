-- Undoes an allowed ask: the twin of the give_back functions in gateway.limits.
--
-- KEYS   the key of every limit of the ask
-- ARGV   now   microseconds; 0 means the server's own time (only tests give another)
--        cost  what the ask took
--        then for each limit
--          token bucket        1, turn_us, turn_ns, inc_us, inc_ns, tol_us, tol_ns
--          sliding window log  2, turn
-- reply  how many of the limits were given something back
--
-- Times are pairs of microseconds and nanoseconds, as in decide.lua.

local call, pcall, tonumber, format = redis.call, redis.pcall, tonumber, string.format

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local cost = ARGV[2]

local function plus(us, ns, more_us, more_ns)
  us, ns = us + more_us, ns + more_ns
  if ns >= 1000 then
    return us + 1, ns - 1000
  end
  return us, ns
end

local function minus(us, ns, less_us, less_ns)
  us, ns = us - less_us, ns - less_ns
  if ns < 0 then
    return us - 1, ns + 1000
  end
  return us, ns
end

local function is_after(us, ns, other_us, other_ns)
  return us > other_us or (us == other_us and ns > other_ns)
end

-- What of a bucket's state is to be taken away; see token_bucket.give_back for the reasons.
local function refund(us, ns, at)
  local turn_us, turn_ns = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local inc_us, inc_ns = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local tol_us, tol_ns = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  if is_after(turn_us, turn_ns, now, 0) then
    local last_us, last_ns = plus(turn_us, turn_ns, tol_us, tol_ns)
    if us == last_us and ns == last_ns then
      return inc_us, inc_ns
    end
    return 0, 0
  end
  if is_after(us, ns, now + tol_us, tol_ns) then
    return 0, 0
  end
  local refilled_us, refilled_ns = minus(now, 0, turn_us, turn_ns)
  if not is_after(inc_us, inc_ns, refilled_us, refilled_ns) then
    return 0, 0
  end
  return minus(inc_us, inc_ns, refilled_us, refilled_ns)
end

local function give_back_to_bucket(key, at)
  local text = pcall('GET', key)
  if type(text) ~= 'string' or not text:find('^%d%d%d%d+$') then
    return 0
  end
  local us, ns = tonumber(text:sub(1, -4)), tonumber(text:sub(-3))
  local back_us, back_ns = refund(us, ns, at)
  if back_us == 0 and back_ns == 0 then
    return 0
  end
  us, ns = minus(us, ns, back_us, back_ns)
  if is_after(us, ns, now, 0) then
    local ttl = math.max(math.floor((us + 1 - now) / 1000) + 2, 1)
    call('SET', key, format('%.0f%03.0f', us, ns), 'PX', format('%.0f', ttl))
  else
    call('DEL', key)
  end
  return 1
end

local function give_back_to_log(key, turn)
  -- From the tail, where those that wait are. Times that are equal are interchangeable.
  local removed = pcall('LREM', key, '-' .. cost, turn)
  return type(removed) == 'number' and removed > 0 and 1 or 0
end

local at, given = 3, 0
for i = 1, #KEYS do
  if ARGV[at] == '1' then
    given = given + give_back_to_bucket(KEYS[i], at + 1)
    at = at + 7
  else
    given = given + give_back_to_log(KEYS[i], ARGV[at + 1])
    at = at + 2
  end
end
return given

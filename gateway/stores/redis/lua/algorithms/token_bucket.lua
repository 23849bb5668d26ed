-- Token bucket: the twin of gateway.limits.token_bucket.
--
-- decide     max_wait, queue, inc_us, inc_ns, tol_us, tol_ns
--            queue: plus the allowed debt, as time
--            inc: the cost of the ask, as time; negative if it is more than the limit holds
-- reply      allowed, state_us, state_ns   (before spending)
-- give back  turn_us, turn_ns, inc_us, inc_ns, tol_us, tol_ns, owed: the allowed debt, as time
--
-- The state is nanoseconds, which a Lua number can hold for 104 days only. So a time is a pair:
-- microseconds and the nanoseconds (0..999) on top. Stored, it is the decimal digits of the one
-- after those of the other: the integer that the Python original keeps.

local function is_after(us, ns, other_us, other_ns)
  return us > other_us or (us == other_us and ns > other_ns)
end

local function store(key, us, ns)
  call('SET', key, format('%.0f%03.0f', us, ns), 'PX', ttl_ms(us + 1))
end

local function look(key, at)
  local max_wait, queue = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local inc_us, inc_ns = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local tol_us, tol_ns = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5])
  local us, ns, is_known, is_ahead = now, 0, false, false
  local is_debit, furthest_us = max_wait < 0, now + tol_us + queue
  -- A value that is not a state (another type, other text) counts as no state.
  local text = pcall('GET', key)
  if type(text) == 'string' and text:find('^%d%d%d%d+$') then
    is_known = true
    local state_us, state_ns = tonumber(text:sub(1, -4)), tonumber(text:sub(-3))
    if state_us >= now then
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
  if is_debit and is_after(after_us, after_ns, furthest_us, tol_ns) then
    after_us, after_ns = furthest_us, tol_ns
  end
  local takes_nothing = inc_us == 0 and inc_ns == 0
  local allowed = is_debit or inc_us >= 0
    and (takes_nothing or not is_after(after_us, after_ns, now + tol_us + max_wait, tol_ns))
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = allowed and 1 or 0, us, ns
  return {key = key, allowed = allowed, us = us, ns = ns, after_us = after_us,
    after_ns = after_ns, is_known = is_known, is_ahead = is_ahead}, at + 6
end

local function spend(seen)
  store(seen.key, seen.after_us, seen.after_ns)
end

local function refuse(seen)
  if seen.is_ahead then
    store(seen.key, seen.us, seen.ns)
  elseif seen.is_known then
    see_to_ttl(seen.key, seen.us)
  end
end

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

-- Returns how much to subtract from a bucket's state; see token_bucket.give_back for the reasons.
local function refund(us, ns, at)
  local turn_us, turn_ns = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local inc_us, inc_ns = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local tol_us, tol_ns, owed = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  if is_after(turn_us, turn_ns, now, 0) then
    local last_us, last_ns = plus(turn_us, turn_ns, tol_us, tol_ns)
    if us == last_us and ns == last_ns then
      return inc_us, inc_ns
    end
    return 0, 0
  end
  if is_after(us, ns, now + tol_us + owed, tol_ns) then
    return 0, 0
  end
  local refilled_us, refilled_ns = minus(now, 0, turn_us, turn_ns)
  if not is_after(inc_us, inc_ns, refilled_us, refilled_ns) then
    return 0, 0
  end
  return minus(inc_us, inc_ns, refilled_us, refilled_ns)
end

local function give_back(key, at)
  local text = pcall('GET', key)
  if type(text) ~= 'string' or not text:find('^%d%d%d%d+$') then
    return 0, at + 7
  end
  local us, ns = tonumber(text:sub(1, -4)), tonumber(text:sub(-3))
  local back_us, back_ns = refund(us, ns, at)
  if back_us == 0 and back_ns == 0 then
    return 0, at + 7
  end
  us, ns = minus(us, ns, back_us, back_ns)
  if is_after(us, ns, now, 0) then
    store(key, us, ns)
  else
    call('DEL', key)
  end
  return 1, at + 7
end

return {look = look, spend = spend, refuse = refuse, give_back = give_back}

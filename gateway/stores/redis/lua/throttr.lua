-- The beginning of both versions of Throttr: the time, numbers of 64 bits, and deadlines.
--
-- KEYS     the key of each request, in order
-- ARGV[1]  now: microseconds; 0 means the server's own time (only tests pass another)
-- ARGV[2]  late: nothing is done if the server's time is beyond this; 0 for no bound
-- reply    now, and unless the batch came too late the answer to each request
--
-- A Lua number holds integers exactly up to 2^53. Numbers of 64 bits are two of 32, the high and
-- the low half; of a negative number, only the high half is negative.
--
-- A record expires a number of units after its anchor, the moment of its INSERT, SET or PATCH of
-- the ttl: so the deadline is exact in every unit, without a multiplication.

local call, pcall, tonumber, format = redis.call, redis.pcall, tonumber, string.format
local find = string.find
local pack, unpack = struct.pack, struct.unpack
local floor, min, max = math.floor, math.min, math.max
local WORD = 4294967296
local EXACT = 2 ^ 53
local LONGEST_MS = 1e14
local INSERT, QUERY, UPDATE, PURGE, SET, GET = 1, 2, 3, 4, 5, 6
local QUOTA, TTL, PATCH, INCREASE, DECREASE = 0, 1, 0, 1, 2

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local reply = {now}
local late = tonumber(ARGV[2])
if late > 0 and now > late then
  return reply
end

local function add(hi, lo, more_hi, more_lo)
  lo = lo + more_lo
  if lo >= WORD then
    return hi + more_hi + 1, lo - WORD
  end
  return hi + more_hi, lo
end

local function subtract(hi, lo, less_hi, less_lo)
  lo = lo - less_lo
  if lo < 0 then
    return hi - less_hi - 1, lo + WORD
  end
  return hi - less_hi, lo
end

local function is_less(hi, lo, than_hi, than_lo)
  return hi < than_hi or (hi == than_hi and lo < than_lo)
end

-- Returns the whole units from a moment until now; a unit of 0 microseconds is a nanosecond.
local function units_since(moment, unit_us)
  local units = now - moment
  if unit_us > 0 then
    units = floor(units / unit_us)
  end
  local hi = floor(units / WORD)
  local lo = units - hi * WORD
  if unit_us == 0 then
    lo = lo * 1000
    local carry = floor(lo / WORD)
    hi, lo = hi * 1000 + carry, lo - carry * WORD
  end
  return hi, lo
end

-- Returns whether a moment plus so many units is in the future.
local function is_ahead(moment, unit_us, ttl_hi, ttl_lo)
  local hi, lo = units_since(moment, unit_us)
  return is_less(hi, lo, ttl_hi, ttl_lo)
end

-- Returns about the milliseconds until then, rounded up: the record itself states when it expires,
-- and Redis only has to remove it.
local function ms_until(moment, unit_us, ttl_hi, ttl_lo)
  local ttl_us = (ttl_hi * WORD + ttl_lo) * (unit_us > 0 and unit_us or 0.001)
  return min(max(ttl_us - (now - moment), 0) / 1000, LONGEST_MS)
end

-- Whether Redis is full; nil until a write was tried. Redis fails only the first write of a script,
-- and accepts all others, so the result is kept.
local is_full

-- A SET that Redis refuses because it is out of memory must not fail the script.
local function try_to_set(key, state, ms)
  local told = pcall('SET', key, state, 'PX', ms)
  is_full = type(told) == 'table' and told.err ~= nil and find(told.err, 'OOM', 1, true) ~= nil
  if not is_full and type(told) == 'table' and told.err then
    call('SET', key, state, 'PX', ms) -- It fails again, with the error of Redis.
  end
end

-- Stores a record; returns whether there was room. If Redis is full, there is none for a new record,
-- while an existing one is deleted first, and so takes no more than before.
local function keep(key, state, ms, is_new)
  -- The server's clock for expiry has whole milliseconds, rounded down.
  ms = format('%.0f', floor(ms) + 2)
  if is_full == nil then
    try_to_set(key, state, ms)
    if not is_full then
      return true
    end
  end
  if is_full and is_new then
    return false
  end
  if is_full then
    call('DEL', key)
  end
  call('SET', key, state, 'PX', ms)
  return true
end

-- Deletes an existing record.
local function forget(key, state)
  if is_full == nil then
    try_to_set(key, state, '1000')
  end
  return call('DEL', key)
end

-- A value that is not a string, or is too short, counts as no record.
local function load(key, size)
  local state = pcall('GET', key)
  return type(state) == 'string' and #state >= size and state or nil
end

-- Returns whether these values are of a valid record; a foreign value cannot be used.
local function is_sound(unit_us, moment, ttl_hi)
  return unit_us and moment >= 0 and moment < EXACT and ttl_hi > -EXACT and ttl_hi < EXACT
end

-- Returns the quota after a change, at most `most`; in version 2 at least 0.
local function changed(change, hi, lo, value_hi, value_lo, most_hi, most_lo)
  if change == PATCH then
    return value_hi, value_lo
  elseif change == INCREASE then
    hi, lo = add(hi, lo, value_hi, value_lo)
    if is_less(most_hi, most_lo, hi, lo) then
      return most_hi, most_lo
    end
  elseif change == DECREASE then
    hi, lo = subtract(hi, lo, value_hi, value_lo)
    if hi < 0 then
      return 0, 0
    end
  end
  return hi, lo
end

-- Returns anchor and ttl after a change.
local function changed_ttl(change, anchor, hi, lo, value_hi, value_lo)
  if change == PATCH then
    return now, value_hi, value_lo
  elseif change == INCREASE then
    return anchor, add(hi, lo, value_hi, value_lo)
  elseif change == DECREASE then
    return anchor, subtract(hi, lo, value_hi, value_lo)
  end
  return anchor, hi, lo
end


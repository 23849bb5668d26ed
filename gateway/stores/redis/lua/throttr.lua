-- What both versions of Throttr begin with: the time, numbers of 64 bits, and deadlines.
--
-- KEYS     the key of each request, in order
-- ARGV[1]  now: microseconds; 0 means the server's own time (only tests give another)
-- ARGV[2]  late: nothing is done if the server's time is beyond this; 0 for no bound
-- reply    now, and unless the batch came too late what each request is answered
--
-- A Lua number holds integers exactly up to 2^53. Numbers of 64 bits are two of 32, the high and
-- the low half; the high half of what may be negative is, and the low one never.
--
-- A record expires so many units after its anchor, the moment of its INSERT, SET or PATCH of the
-- ttl: so the deadline is exact whatever the unit, and no number is ever multiplied.

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

-- Whole units from a moment until now; a unit of 0 microseconds is a nanosecond.
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

-- Whether so many units after a moment is still to come.
local function is_ahead(moment, unit_us, ttl_hi, ttl_lo)
  local hi, lo = units_since(moment, unit_us)
  return is_less(hi, lo, ttl_hi, ttl_lo)
end

-- Milliseconds until then, about; no less than there are, since the record itself says when it
-- expires, and Redis only has to tidy up.
local function ms_until(moment, unit_us, ttl_hi, ttl_lo)
  local ttl_us = (ttl_hi * WORD + ttl_lo) * (unit_us > 0 and unit_us or 0.001)
  return min(max(ttl_us - (now - moment), 0) / 1000, LONGEST_MS)
end

-- Whether Redis is full; nil until a write was tried. It says so to the first write of a script
-- only and lets all others through, so what it said is remembered.
local is_full

-- A SET that Redis refuses for want of memory is no failure of the script.
local function try_to_set(key, state, ms)
  local told = pcall('SET', key, state, 'PX', ms)
  is_full = type(told) == 'table' and told.err ~= nil and find(told.err, 'OOM', 1, true) ~= nil
  if not is_full and type(told) == 'table' and told.err then
    call('SET', key, state, 'PX', ms) -- It fails again, in words that Redis chooses.
  end
end

-- Keep a record; returns whether there was room. Where Redis is full a new one has none, while one
-- that is there makes way for itself: what is deleted and set again takes no more.
local function keep(key, state, ms, is_new)
  -- The server's clock for expiry counts whole milliseconds, rounded down.
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

-- Forget a record that is there.
local function forget(key, state)
  if is_full == nil then
    try_to_set(key, state, '1000')
  end
  return call('DEL', key)
end

-- What is no string, or too short a one, is as good as none.
local function load(key, size)
  local state = pcall('GET', key)
  return type(state) == 'string' and #state >= size and state or nil
end

-- Whether these can be of one of our records; with what others left, nothing can be reckoned.
local function is_sound(unit_us, moment, ttl_hi)
  return unit_us and moment >= 0 and moment < EXACT and ttl_hi > -EXACT and ttl_hi < EXACT
end

-- The quota after a change, at most `most`; in version 2 no less than nothing.
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

-- Anchor and ttl after a change.
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


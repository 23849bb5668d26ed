-- Requests of Throttr v5, in order. throttr.lua comes before this.
--
-- ARGV[3]  bits of a value
-- ARGV...  each request: operation, ttl type or attribute, change, value, ttl, and the value of a
--          buffer
-- state    whether it is a buffer, ttl type, anchor, ttl, quota, and the value of a buffer
-- reply    0 or 1; to QUERY and GET the state if there is such a record

local UNITS_US = {0, 1, 1000, 1000000, 60000000, 3600000000}
local REQUEST, REQUEST_SIZE = '<BBBI4I4I4I4', 19
local STATE, STATE_SIZE = '<BBdI4dI4I4', 30
local bits = tonumber(ARGV[3])
local MOST_HI = bits == 64 and WORD - 1 or 0
local MOST_LO = bits < 32 and 2 ^ bits - 1 or WORD - 1

local function add_record(key, is_buffer, unit, ttl_hi, ttl_lo, hi, lo, value)
  local state = pack(STATE, is_buffer, unit, now, ttl_lo, ttl_hi, lo, hi) .. value
  if ttl_hi == 0 and ttl_lo == 0 then
    return 1
  end
  return keep(key, state, ms_until(now, UNITS_US[unit], ttl_hi, ttl_lo), true) and 1 or 0
end

local function update(key, state, code, change, hi, lo)
  local is_buffer, unit, anchor, ttl_lo, ttl_hi, quota_lo, quota_hi = unpack(STATE, state)
  if code == QUOTA and is_buffer == 0 then
    if change == DECREASE and is_less(quota_hi, quota_lo, hi, lo) then
      return 0
    end
    quota_hi, quota_lo = changed(change, quota_hi, quota_lo, hi, lo, MOST_HI, MOST_LO)
  elseif code == TTL then
    anchor, ttl_hi, ttl_lo = changed_ttl(change, anchor, ttl_hi, ttl_lo, hi, lo)
  else
    return 0
  end
  if is_ahead(anchor, UNITS_US[unit], ttl_hi, ttl_lo) then
    local after = pack(STATE, is_buffer, unit, anchor, ttl_lo, ttl_hi, quota_lo, quota_hi)
    after = after .. state:sub(STATE_SIZE + 1)
    keep(key, after, ms_until(anchor, UNITS_US[unit], ttl_hi, ttl_lo), false)
  else
    forget(key, state)
  end
  return 1
end

for i, key in ipairs(KEYS) do
  local request = ARGV[i + 3]
  local operation, code, change, lo, hi, ttl_lo, ttl_hi = unpack(REQUEST, request)
  local state, is_buffer = load(key, STATE_SIZE), 0
  if state then
    local unit, anchor, its_lo, its_hi, quota_lo, quota_hi
    is_buffer, unit, anchor, its_lo, its_hi, quota_lo, quota_hi = unpack(STATE, state)
    local is_ours = is_sound(UNITS_US[unit], anchor, its_hi) and is_buffer <= 1
    if not is_ours or is_less(MOST_HI, MOST_LO, quota_hi, quota_lo)
      or not is_ahead(anchor, UNITS_US[unit], its_hi, its_lo) then
      state = nil
    end
  end
  local answer = 0
  if operation == INSERT then
    answer = state and 0 or add_record(key, 0, code, ttl_hi, ttl_lo, hi, lo, '')
  elseif operation == SET then
    local value = request:sub(REQUEST_SIZE + 1)
    answer = state and 0 or add_record(key, 1, code, ttl_hi, ttl_lo, 0, 0, value)
  elseif state == nil then
    answer = 0
  elseif operation == UPDATE then
    answer = update(key, state, code, change, hi, lo)
  elseif operation == PURGE then
    answer = forget(key, state)
  elseif (operation == QUERY and is_buffer == 0) or (operation == GET and is_buffer == 1) then
    answer = state
  end
  reply[i + 1] = answer
end
return reply

-- Requests of Throttr v2, in order. throttr.lua comes before this.
--
-- ARGV[3]  how long an expired record is kept, in microseconds
-- ARGV...  each request: operation, ttl type or attribute, change, value, ttl, usage
-- state    ttl type, anchor, ttl, quota, when the ttl was last set
-- reply    0 or 1; to QUERY the state of a record that has not expired; to INSERT whether it is
--          admitted, as a byte, and the state, or 0 if there is no room for a new record

local REQUEST = '<BBBI4I4I4I4I4I4'
local STATE, STATE_SIZE = '<BdI4dI4I4d', 37
local grace = tonumber(ARGV[3])

local function unit_us(unit)
  return unit == 0 and 0 or unit == 1 and 1000 or 1000000
end

-- Returns the stored state; nil if it is new and there is no room for it.
local function keep_record(key, is_new, unit, anchor, ttl_hi, ttl_lo, hi, lo, set_at)
  local state = pack(STATE, unit, anchor, ttl_lo, ttl_hi, lo, hi, set_at)
  local ms = ms_until(anchor, unit_us(unit), ttl_hi, ttl_lo)
  ms = max(ms, (set_at - now) / 1000) + grace / 1000
  return keep(key, state, ms, is_new) and state or nil
end

local function insert(key, state, is_live, unit, ttl_hi, ttl_lo, hi, lo, usage_hi, usage_lo)
  local its_unit, anchor, its_lo, its_hi, set_at = unit, now, ttl_lo, ttl_hi, now
  if is_live then
    its_unit, anchor, its_lo, its_hi, lo, hi, set_at = unpack(STATE, state)
  end
  local may = not is_less(hi, lo, usage_hi, usage_lo)
  if may then
    hi, lo = subtract(hi, lo, usage_hi, usage_lo)
  end
  if may or not is_live then
    local is_new = state == nil
    state = keep_record(key, is_new, its_unit, anchor, its_hi, its_lo, hi, lo, set_at)
    if state == nil then
      return 0
    end
  end
  return (may and '\1' or '\0') .. state
end

local function update(key, state, code, change, value_hi, value_lo)
  local unit, anchor, ttl_lo, ttl_hi, lo, hi, set_at = unpack(STATE, state)
  if code == QUOTA then
    hi, lo = changed(change, hi, lo, value_hi, value_lo, WORD - 1, WORD - 1)
  elseif code == TTL then
    anchor, ttl_hi, ttl_lo = changed_ttl(change, anchor, ttl_hi, ttl_lo, value_hi, value_lo)
    set_at = now
  end
  keep_record(key, false, unit, anchor, ttl_hi, ttl_lo, hi, lo, set_at)
  return 1
end

for i, key in ipairs(KEYS) do
  local operation, code, change, lo, hi, ttl_lo, ttl_hi, usage_lo, usage_hi =
    unpack(REQUEST, ARGV[i + 3])
  local state, is_live = load(key, STATE_SIZE), false
  if state then
    local unit, anchor, its_lo, its_hi, _, _, set_at = unpack(STATE, state)
    local us = unit_us(unit)
    local is_ours = is_sound(us, anchor, its_hi) and is_sound(us, set_at, 0)
    if #state ~= STATE_SIZE or not is_ours then
      state = nil
    elseif is_ahead(anchor, us, its_hi, its_lo) then
      is_live = true
    elseif now >= set_at + grace and not is_ahead(anchor + grace, us, its_hi, its_lo) then
      state = nil
    end
  end
  local answer = 0
  if operation == INSERT then
    answer = insert(key, state, is_live, code, ttl_hi, ttl_lo, hi, lo, usage_hi, usage_lo)
  elseif operation == QUERY then
    answer = is_live and state or 0
  elseif state and operation == PURGE then
    answer = forget(key, state)
  elseif state then
    answer = update(key, state, code, change, hi, lo)
  end
  reply[i + 1] = answer
end
return reply

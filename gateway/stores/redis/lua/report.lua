-- Records requests that gatekeepers admitted: the twin of gateway.limits.reported.
--
-- KEYS   one per recorded time; a key may repeat
-- ARGV   now: microseconds since 1970, by the caller's clock
--        for each key: the time, the algorithm's tag, burst, interval, window
-- reply  for each key, when the next request may proceed; 0 for now
--
-- Histories are lists of ascending times, buckets one number. common.lua comes before this.

local FURTHEST = 60000000

-- Insert a time before the `behind` later ones. These are moved; if there are many, Redis searches
-- for the first of them from the head, at a tenth of the cost per element.
local function insert(key, length, at, behind)
  if behind > CHUNK and 10 * behind > length then
    call('LINSERT', key, 'BEFORE', call('LINDEX', key, -behind), format('%.0f', at))
    return
  end
  local later = {}
  if behind > 0 then
    later = call('LRANGE', key, -behind, -1)
    call('LTRIM', key, 0, -behind - 1)
  end
  push(key, at, 1)
  for first = 1, behind, CHUNK do
    call('RPUSH', key, unpack(later, first, min(first + CHUNK - 1, behind)))
  end
end

local function record(key, at, burst, interval, window)
  local length = pcall('LLEN', key)
  if type(length) ~= 'number' then
    call('DEL', key)
    length = 0
  end
  local oldest, furthest = now - window, now + FURTHEST
  -- The clock has gone back.
  local ahead = count_after(key, length, furthest)
  if ahead > 0 then
    call('LTRIM', key, 0, -ahead - 1)
    push(key, furthest, ahead)
  end
  insert(key, length, at, count_after(key, length, at))
  length = length + 1
  local first = max(length - burst, 0)
  first = first + count_before(key, first, length - first, oldest)
  if first > 0 then
    call('LTRIM', key, first, -1)
  end
  length = length - first
  if length == 0 then
    return 0
  end
  local newest = tonumber(call('LINDEX', key, -1)) or 0
  call('PEXPIRE', key, ttl_ms(newest + window + 1))
  return length >= burst and max(now, newest) + interval or 0
end

local function take(key, at, burst, interval)
  local whole = burst * interval
  local full = load_numbers(key, '^(%d+)$') or 0
  full = full > now and max(full, at) or at
  full = min(full, now + FURTHEST + whole) + interval
  if full > now then
    store_numbers(key, full, full)
  else
    call('DEL', key)
  end
  local next_at = full + interval - whole
  return next_at > now and next_at or 0
end

local answers, at = {}, 2
for i, key in ipairs(KEYS) do
  local time, tag = tonumber(ARGV[at]), ARGV[at + 1]
  local burst, interval, window =
    tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  if tag == 'rt' then
    answers[i] = take(key, time, burst, interval)
  else
    answers[i] = record(key, time, burst, interval, window)
  end
  at = at + 5
end
return answers

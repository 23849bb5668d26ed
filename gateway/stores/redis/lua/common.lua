-- The beginning of every script: the time, times to live, and logs of times in lists.
--
-- ARGV[1]  now: microseconds; 0 means the server's own time (only tests pass another)
--
-- A Lua number holds integers exactly up to 2^53, which is the year 2255 in microseconds.

local call, pcall, tonumber, format = redis.call, redis.pcall, tonumber, string.format
local floor, min, max = math.floor, math.min, math.max
local CHUNK = 128

local now = tonumber(ARGV[1])
if now == 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local reply = {now}

-- Milliseconds for a key that matters until `ends`. The server's clock for expiry has
-- whole milliseconds, rounded down: one is added, or a key could expire too early.
local function ttl_ms(ends)
  return format('%.0f', max(floor((ends - now) / 1000) + 2, 1))
end

-- A refusal writes little, so it must make sure that the key expires: it may have no TTL (restored,
-- written by hand), or one from when its limit was shorter.
local function see_to_ttl(key, ends)
  local ttl = call('PTTL', key)
  if ttl ~= -2 and ttl * 1000 < ends - now then
    call('PEXPIRE', key, ttl_ms(ends))
  end
end

-- A state of a few numbers is one string; any other value counts as no state.
local function store_numbers(key, ends, ...)
  local texts = {}
  for i, number in ipairs({...}) do
    texts[i] = format('%.0f', number)
  end
  call('SET', key, table.concat(texts, ' '), 'PX', ttl_ms(ends))
end

local function load_numbers(key, pattern)
  local text = pcall('GET', key)
  if type(text) == 'string' then
    local a, b, c = text:match(pattern)
    return tonumber(a), tonumber(b), tonumber(c)
  end
end

local function time_at(key, index)
  return tonumber(call('LINDEX', key, index)) or 0
end

-- Returns how many of a list's ascending times are before `moment`; the first time is at the index
-- `begin`. Usually there are few: the steps start small, and double.
local function count_before(key, begin, length, moment)
  if length == 0 or time_at(key, begin) >= moment then
    return 0
  end
  local known, open = 1, 2
  while open <= length and time_at(key, begin + open - 1) < moment do
    known, open = open, open * 2
  end
  open = min(open, length + 1)
  while open - known > 1 do
    local middle = floor((known + open) / 2)
    if time_at(key, begin + middle - 1) < moment then
      known = middle
    else
      open = middle
    end
  end
  return known
end

-- Returns how many of the last `length` times of a list are after `moment`, in the same way.
local function count_after(key, length, moment)
  if length == 0 or time_at(key, -1) <= moment then
    return 0
  end
  local known, open = 1, 2
  while open <= length and time_at(key, -open) > moment do
    known, open = open, open * 2
  end
  open = min(open, length + 1)
  while open - known > 1 do
    local middle = floor((known + open) / 2)
    if time_at(key, -middle) > moment then
      known = middle
    else
      open = middle
    end
  end
  return known
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

-- The answer of one limit: the fields of a `Decision`.
local function answer(allowed, wait, retry_after, remaining, reset, receipt)
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = allowed and 1 or 0, wait, retry_after
  reply[n + 4], reply[n + 5], reply[n + 6] = remaining, reset, receipt
end

-- Each algorithm is created on first use; its file is a function here.
local algorithms, made = {}, {}
local function algorithm(tag)
  if not made[tag] then
    made[tag] = algorithms[tag]()
  end
  return made[tag]
end


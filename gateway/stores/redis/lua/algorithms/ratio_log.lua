-- The sliding window log in the sorted sets of a ratio server, which may use them concurrently.
--
-- decide     max_wait, queue, window, count, counts_refused, debt; the first two and the last are 0
-- reply      allowed, used, last, turn
-- give back  turn
--
-- The score of a hit is its time in milliseconds. ratio's member is that time as well, so two hits
-- of one millisecond are one; members of this script are the time in microseconds and a number.

-- How old the time may be up to which a ratio server counts: it reads its own clock first, and may
-- then wait for Redis.
local LAG = 10000000

local serial = 0

local function milliseconds(us)
  return format('%.0f', floor(us / 1000))
end

local function look(key, at, cost)
  local window, capacity = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local counts_refused = ARGV[at + 4] == '1'
  local begins = milliseconds(now - window)
  local used = pcall('ZCOUNT', key, begins, '+inf')
  -- These keys have no namespace, and clients choose them: a value of another program is left as
  -- it is. ratio answers with an error then.
  local is_foreign = type(used) ~= 'number'
  if is_foreign then
    used = capacity
  end
  -- Returns the time of the hit at a position in the window, which may be in the future.
  local function time_of(place)
    if is_foreign or place > used then
      return now
    end
    -- From the newest: there may be many more than count.
    local found = call('ZREVRANGEBYSCORE', key, '+inf', begins, 'WITHSCORES',
      'LIMIT', used - place, 1)
    -- The clock of a ratio server may be ahead.
    return min((tonumber(found[2]) or 0) * 1000, now)
  end
  local allowed = cost == 0 or used + cost <= capacity
  local counts = not allowed and not is_foreign and counts_refused and cost <= capacity
  local seen, last, turn = used, now, now
  if counts then
    local dropped = max(used + cost - capacity, 0)
    seen = min(used + cost, capacity)
    turn = time_of(dropped + seen + cost - capacity) + window + 1000
  elseif used > 0 then
    last = time_of(used)
    if not allowed and cost <= capacity then
      turn = time_of(used + cost - capacity) + window + 1000
    end
  end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = allowed and 1 or 0, seen, last, turn
  return {key = key, allowed = allowed, is_foreign = is_foreign, used = used, last = last,
    begins = begins, window = window, capacity = capacity, counts = counts}, at + 6
end

local function add(seen, cost)
  -- First: a full server refuses this, but nothing after the first write of a script.
  for _ = 1, cost do
    repeat
      serial = serial + 1
    until call('ZADD', seen.key, 'NX', milliseconds(now), format('%.0f:%d', now, serial)) == 1
  end
  call('ZREMRANGEBYSCORE', seen.key, '-inf', '(' .. seen.begins)
  call('PEXPIRE', seen.key, ttl_ms(now + seen.window + 1000))
end

local function spend(seen, cost)
  add(seen, cost)
end

local function refuse(seen, cost)
  if seen.counts then
    add(seen, cost)
    -- The newest are enough to decide, and a client that keeps asking must not fill the memory.
    -- They are also enough for a ratio server: it counts none after its moment.
    local settled = call('ZCOUNT', seen.key, '-inf', milliseconds(now - LAG))
    if settled > seen.capacity then
      call('ZREMRANGEBYRANK', seen.key, 0, settled - seen.capacity - 1)
    end
  elseif seen.used > 0 and not seen.is_foreign then
    see_to_ttl(seen.key, seen.last + seen.window + 1000)
  end
end

local function give_back(key, at, cost)
  local moment = milliseconds(tonumber(ARGV[at]))
  local hits = pcall('ZRANGEBYSCORE', key, moment, moment, 'LIMIT', 0, cost)
  if type(hits) ~= 'table' or #hits == 0 then
    return 0, at + 1
  end
  for first = 1, #hits, CHUNK do
    call('ZREM', key, unpack(hits, first, min(first + CHUNK - 1, #hits)))
  end
  return 1, at + 1
end

return {look = look, spend = spend, refuse = refuse, give_back = give_back}

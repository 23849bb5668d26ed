-- Sliding window counter: the twin of gateway.limits.sliding_counter.
--
-- decide     max_wait, queue, period, count, counts_refused, debt
-- give back  period, receipt
--
-- The state is `last previous current`.

local BASE = 128

-- Returns a * b / d, whole part and rest, for d < 2^45: digit by digit, as the product may be more than a
-- Lua number holds.
local function divide(a, b, d)
  local whole, part = a * floor(b / d), b % d
  local quotient, rest, weight = 0, 0, 1
  while weight * BASE <= a do
    weight = weight * BASE
  end
  while weight >= 1 do
    rest = rest * BASE + floor(a / weight) * part
    quotient = quotient * BASE + floor(rest / d)
    a, rest, weight = a % weight, rest % d, weight / BASE
  end
  return whole + quotient, rest
end

local function roll(last, previous, current, moment, queue, period)
  local at = min(max(moment, last), moment + queue)
  local windows = floor(at / period) - floor(last / period)
  if windows <= 0 then
    return at, previous, current
  end
  return at, windows == 1 and current or 0, 0
end

-- Returns how far into a window the `previous` of the one before weigh no more than `room`.
local function first_fit(previous, room, period)
  if previous <= room then
    return 0
  end
  return period - (divide(room, period, previous))
end

-- Returns the first moment, not before `at`, at which the estimate has room for `cost`.
local function turn_of(at, previous, current, cost, count, period)
  local start = at - at % period
  local room = count - current - cost
  if room >= 0 then
    return max(at, start + first_fit(previous, room, period))
  end
  return start + period + first_fit(current, count - cost, period)
end

local function ends(last, previous, current, period)
  if previous == 0 and current == 0 then
    return last
  end
  return last - last % period + period * (current > 0 and 2 or 1)
end

-- Returns how many requests of cost 1 could pass now.
local function remaining(at, previous, current, count, period)
  if at > now then
    return 0
  end
  local weight, rest = divide(previous, period - at % period, period)
  return max(count - weight - (rest > 0 and 1 or 0) - current, 0)
end

local function store(key, last, previous, current, period)
  local over = ends(last, previous, current, period)
  if over <= now then
    call('DEL', key)
  else
    store_numbers(key, over, last, previous, current)
  end
end

local function look(key, at, cost)
  local max_wait, queue = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local period, count = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local last, previous, current = load_numbers(key, '^(%d+) (%d+) (%d+)$')
  local is_known = last ~= nil
  if is_known then
    last, previous, current = roll(last, previous, current, now, queue, period)
  else
    last, previous, current = now, 0, 0
  end
  local wait, retry_after, receipt = 0, 0, 0
  if max_wait < 0 then
    current = max(current, min(current + cost, count + tonumber(ARGV[at + 5])))
    local turn = turn_of(last, previous, current, 0, count, period)
    wait = turn > last and turn - now or 0
    receipt = cost > 0 and now + wait or now
  elseif cost > count then
    retry_after = -1
  elseif cost > 0 then
    local turn = turn_of(last, previous, current, cost, count, period)
    if turn - now <= max_wait then
      last, previous, current = roll(last, previous, current, turn, queue, period)
      current = current + cost
      wait, receipt = turn - now, turn
    else
      if ARGV[at + 4] == '1' then
        current = max(current, min(current + cost, count))
        turn = turn_of(last, previous, current, cost, count, period)
      end
      retry_after = turn - now - max_wait
    end
  else
    receipt = now
  end
  answer(retry_after == 0, wait, retry_after, remaining(last, previous, current, count, period),
    max(ends(last, previous, current, period) - now, 0), receipt)
  return {key = key, allowed = retry_after == 0, is_known = is_known, last = last,
    previous = previous, current = current, period = period}, at + 6
end

local function spend(seen)
  store(seen.key, seen.last, seen.previous, seen.current, seen.period)
end

local function refuse(seen)
  if seen.is_known then
    spend(seen)
  end
end

local function give_back(key, at, cost)
  local period, receipt = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local last, previous, current = load_numbers(key, '^(%d+) (%d+) (%d+)$')
  if not last then
    return 0, at + 2
  end
  local windows_ago = floor(last / period) - floor(receipt / period)
  if windows_ago == 0 then
    current = max(current - cost, 0)
  elseif windows_ago == 1 then
    previous = max(previous - cost, 0)
  else
    return 0, at + 2
  end
  store(key, last, previous, current, period)
  return 1, at + 2
end

return {look = look, spend = spend, refuse = refuse, give_back = give_back}

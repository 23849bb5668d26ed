-- Fixed window: the twin of gateway.limits.fixed_window.
--
-- decide     max_wait, queue, count, counts_refused, debt, n, and n numbers: the period, or the
--            beginnings of a calendar's windows, from the one that contains `early` to the one
--            after the last that a turn may be in
-- give back  the beginning of the window of the turn, and its end
--
-- The state is `last used`.

-- Returns the window of a moment: its first microsecond, and the first of the next.
local function bounds(moment, at, n)
  if n == 1 then
    local period = tonumber(ARGV[at])
    local start = moment - moment % period
    return start, start + period
  end
  local i = at + n - 2
  while i > at and tonumber(ARGV[i]) > moment do
    i = i - 1
  end
  return tonumber(ARGV[i]), tonumber(ARGV[i + 1])
end

local function look(key, at, cost)
  local max_wait, queue, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local debt, n, list = tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), at + 6
  local last, used = load_numbers(key, '^(%d+) (%d+)$')
  local is_known = last ~= nil
  if not is_known then
    last, used = now, 0
  end
  local moment = min(max(now, last), now + queue)
  local start, ends = bounds(moment, list, n)
  if last < start then
    used = 0
  end
  local wait, retry_after, receipt = 0, 0, 0
  if max_wait < 0 then
    used = max(used, min(used + cost, count + debt))
    wait = used > count and ends - now or 0
    receipt = cost > 0 and now + wait or now
  elseif cost > count then
    retry_after = -1
  elseif cost > 0 then
    local fits = used + cost <= count
    local turn = fits and moment or ends
    if turn - now <= max_wait then
      wait, receipt, moment = turn - now, turn, turn
      if fits then
        used = used + cost
      else
        used = cost
        start, ends = bounds(turn, list, n)
      end
    else
      retry_after = turn - now - max_wait
      if ARGV[at + 3] == '1' then
        used = max(used, min(used + cost, count))
      end
    end
  else
    receipt = now
  end
  answer(retry_after == 0, wait, retry_after, moment == now and max(count - used, 0) or 0,
    (used > 0 and ends or moment) - now, receipt)
  return {key = key, allowed = retry_after == 0, is_known = is_known, last = moment, used = used,
    ends = ends}, list + n
end

local function spend(seen)
  local over = seen.used > 0 and seen.ends or seen.last
  if over > now then
    store_numbers(seen.key, over, seen.last, seen.used)
  else
    call('DEL', seen.key)
  end
end

local function refuse(seen)
  if seen.is_known then
    spend(seen)
  end
end

local function give_back(key, at, cost)
  local start, ends = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local last, used = load_numbers(key, '^(%d+) (%d+)$')
  if not last or last < start or last >= ends then
    return 0, at + 2
  end
  spend({key = key, last = last, used = max(used - cost, 0), ends = ends})
  return 1, at + 2
end

return {look = look, spend = spend, refuse = refuse, give_back = give_back}

-- Decides on a batch of asks. common.lua and the algorithms come before this.
--
-- KEYS   the key of every limit of every ask, in order
-- ARGV   now
--        early, late  the batch spends nothing if the server's time is not between them;
--                     a late of 0 means no bound
--        then for each group of successive asks with the same arguments: how many, how many
--        limits each has, its cost (-1, and then the cost of each limit, if they differ), and for
--        each limit the tag of its algorithm and the arguments of that (see its file)
--          queue: the limit's own longest wait; max_wait: the longest wait of this ask
-- reply  now, and unless the batch came at the wrong time the answer of each limit's algorithm;
--        those without a format of their own: allowed, wait, retry_after, remaining, reset,
--        receipt

local late = tonumber(ARGV[3])
if now < tonumber(ARGV[2]) or (late > 0 and now > late) then
  return reply
end

local at, next_key = 4, 1
while ARGV[at] do
  local asks, limits, cost = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local begin, costs = at + 3, nil
  if cost < 0 then
    costs = {}
    for i = 1, limits do
      costs[i] = tonumber(ARGV[begin])
      begin = begin + 1
    end
  end
  for _ = 1, asks do
    at = begin
    local rules, looks, all_allowed = {}, {}, true
    for i = 1, limits do
      rules[i] = algorithm(ARGV[at])
      looks[i], at = rules[i].look(KEYS[next_key], at + 1, costs and costs[i] or cost)
      next_key = next_key + 1
      all_allowed = all_allowed and looks[i].allowed
    end
    for i = 1, limits do
      local own = costs and costs[i] or cost
      if all_allowed and own > 0 then
        rules[i].spend(looks[i], own)
      elseif not looks[i].allowed then
        rules[i].refuse(looks[i], own)
      end
    end
  end
end
return reply

-- Undoes an admitted ask. common.lua and the algorithms come before this.
--
-- KEYS   the key of every limit of the ask
-- ARGV   now, the cost of the ask, then for each limit the tag of its algorithm and the
--        arguments of that (see its file)
-- reply  how many of the limits got something back

local cost, at, given = tonumber(ARGV[2]), 3, 0
if cost == 0 then
  return 0
end
for i = 1, #KEYS do
  local one
  one, at = algorithm(ARGV[at]).give_back(KEYS[i], at + 1, cost)
  given = given + one
end
return given

-- Undoes an allowed ask. common.lua and the algorithms come before this.
--
-- KEYS   the key of every limit of the ask
-- ARGV   now, what the ask took, then for each limit the tag of its algorithm and what that
--        wants to know (see its file)
-- reply  how many of the limits were given something back

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

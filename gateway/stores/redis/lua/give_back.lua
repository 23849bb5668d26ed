-- Undoes an admitted ask. common.lua and the algorithms come before this.
--
-- KEYS   the key of every limit of the ask
-- ARGV   now, then for each limit the cost, the tag of its algorithm and the arguments of that
--        (see its file)
-- reply  how many of the limits got something back

local at, given = 2, 0
if tonumber(ARGV[2]) == 0 then
  return 0
end
for i = 1, #KEYS do
  local cost, one = tonumber(ARGV[at]), nil
  one, at = algorithm(ARGV[at + 1]).give_back(KEYS[i], at + 2, cost)
  given = given + one
end
return given

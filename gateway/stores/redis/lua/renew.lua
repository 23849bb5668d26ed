-- Renews the leases of an admitted ask. common.lua and the algorithms come before this.
--
-- KEYS   the key of every limit of the ask that has a lease
-- ARGV   now, then for each limit the cost, the tag of its algorithm and the arguments of that
--        (see its file)
-- reply  how many of the limits still had the lease

local at, held = 2, 0
for i = 1, #KEYS do
  local cost, one = tonumber(ARGV[at]), nil
  one, at = algorithm(ARGV[at + 1]).renew(KEYS[i], at + 2, cost)
  held = held + one
end
return held

-- Renews the leases of an admitted ask. common.lua and the algorithms come before this.
--
-- KEYS   the key of every limit of the ask that has a lease
-- ARGV   now, the cost of the ask, then for each limit the tag of its algorithm and the
--        arguments of that (see its file)
-- reply  how many of the limits still had the lease

local cost, at, held = tonumber(ARGV[2]), 3, 0
for i = 1, #KEYS do
  local one
  one, at = algorithm(ARGV[at]).renew(KEYS[i], at + 1, cost)
  held = held + one
end
return held

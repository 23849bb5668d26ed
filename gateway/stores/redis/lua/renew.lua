-- Keeps what an allowed ask holds. common.lua and the algorithms come before this.
--
-- KEYS   the key of every limit of the ask that holds something
-- ARGV   now, what the ask took, then for each limit the tag of its algorithm and what that
--        wants to know (see its file)
-- reply  how many of the limits still held it

local cost, at, held = tonumber(ARGV[2]), 3, 0
for i = 1, #KEYS do
  local one
  one, at = algorithm(ARGV[at]).renew(KEYS[i], at + 1, cost)
  held = held + one
end
return held

-- Records that a gateway is alive, and counts all that are.
--
-- KEYS   the sorted set of gateways, by the time of their last heartbeat (server time)
-- ARGV   id of this gateway, milliseconds without a heartbeat after which one counts as stopped
-- reply  how many are alive

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local silence_ms = tonumber(ARGV[2])
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then
  redis.call('DEL', KEYS[1])
end
redis.call('ZADD', KEYS[1], now_ms, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (now_ms - silence_ms))
-- The server's clock may have gone back: heartbeats in the future are dropped.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. now_ms, '+inf')
redis.call('PEXPIRE', KEYS[1], silence_ms)
return redis.call('ZCARD', KEYS[1])

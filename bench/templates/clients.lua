-- For wrk: each request comes from the next of so many clients, told by a header. How many is
-- the first word after the address.

local requests = {}
local position = 0

function init(words)
  for client = 1, tonumber(words[1]) do
    local headers = { ["X-Client"] = string.format("client-%04d", client) }
    for name, value in pairs(wrk.headers) do
      headers[name] = value
    end
    requests[client] = wrk.format("GET", nil, headers)
  end
end

function request()
  position = position % #requests + 1
  return requests[position]
end

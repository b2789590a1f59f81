-- Arguments: a file with a body in each line, a file with a destination in each line (or "-"), and the mean pause of a
-- connection between two requests in milliseconds (0: none).

local requests = {}
local last = 0

function init(args)
  local destinations = {}
  if args[2] ~= "-" then
    for line in io.lines(args[2]) do destinations[#destinations + 1] = line end
  end
  for body in io.lines(args[1]) do
    local headers = { ["content-type"] = "application/json" }
    if #destinations > 0 then
      headers["x-gateway-destination-endpoint"] = destinations[#requests % #destinations + 1]
    end
    requests[#requests + 1] = wrk.format("POST", "/v1/chat/completions", headers, body)
  end

  local pause = tonumber(args[3])
  if pause > 0 then
    -- Exponential, so that requests come at independent moments.
    delay = function() return math.floor(-pause * math.log(1 - math.random()) + 0.5) end
  end
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("figures %d %d %d %d %d\n", summary.requests, summary.duration, failed,
    latency:percentile(50), latency:percentile(99)))
end

-- Arguments: a file with a body in each line, a file with a destination in each line (or "-"), and the mean pause of a
-- connection between two requests in milliseconds (0: none). In a body, the text NEW_NUMBER (bodies.rs) is replaced by another
-- number each time.

local NEW_NUMBER = "A-NUMBER-NOT-YET"
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

-- Of 16 digits, and in this run of wrk and in later ones never the same.
local number = os.time() * 1000000

function request()
  last = last % #requests + 1
  local text = requests[last]
  local from, to = text:find(NEW_NUMBER, 1, true)
  if not from then
    return text
  end
  number = number + 1
  return text:sub(1, from - 1) .. string.format("%016d", number) .. text:sub(to + 1)
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format("figures %d %d %d %d %d\n", summary.requests, summary.duration, failed,
    latency:percentile(50), latency:percentile(99)))
end

"""A model server's routes on the stack that vLLM and SGLang are built on: Starlette on uvicorn.

It listens on a free port of loopback, prints it, and answers each request with what it has received.
"""

import json
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

METRICS = """# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting 0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc 0
"""


async def chat(request: Request) -> JSONResponse:
    model = json.loads(await request.body())["model"]
    return JSONResponse({"served_by": "asgi", "route": "/v1/chat/completions", "model": model, "received": model})


async def metrics(_: Request) -> PlainTextResponse:
    return PlainTextResponse(METRICS)


app = Starlette(routes=[
    Route("/v1/chat/completions", chat, methods=["POST"]),
    Route("/metrics", metrics),
])

listener = socket.create_server(("127.0.0.1", 0))
print("listening on %s:%d" % listener.getsockname(), flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])

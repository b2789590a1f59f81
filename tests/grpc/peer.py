"""vLLM's service of gRPC on grpcio, the library that vLLM's server and most of its clients are built on.

`peer.py serve` listens on a free port of loopback, and prints it. `peer.py call ADDRESS` makes calls, and prints a line of JSON for each.
Messages are written by hand: the fields of vllm.grpc.engine that the endpoint picker reads.
"""

import json
import signal
import sys
from concurrent import futures

import grpc

METHOD = "vllm.grpc.engine.VllmEngine"


def field(number: int, payload: bytes) -> bytes:
    length = len(payload)
    return bytes([number << 3 | 2, length & 0x7F | 0x80, length >> 7]) + payload


def generate(_: bytes, context: grpc.ServicerContext):
    """Three chunks, and the complete response; `context.peer()` is Envoy."""
    context.send_initial_metadata((("x-served-by", "grpcio"),))
    for count in (1, 2, 3):
        yield field(1, bytes([0x0A, 1, count, 0x10, 9, 0x18, count]))
    yield field(2, bytes([0x18, 9, 0x20, 3, 0x28, 4]))


def serve() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    handlers = {"Generate": grpc.unary_stream_rpc_method_handler(generate)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(METHOD, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def call(address: str) -> None:
    calls = {
        "text": field(3, b"hello " * 100) + bytes([0x28, 1]),
        "token ids": field(2, field(2, bytes(range(1, 100)))),
        "no input": bytes([0x28, 1]),
        "malformed": bytes([0x1A, 9]),
    }
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_stream(f"/{METHOD}/Generate")
        for name, request in calls.items():
            responses = method(request, timeout=20, wait_for_ready=True)
            try:
                messages = len(list(responses))
            except grpc.RpcError:
                messages = 0
            metadata = dict(responses.initial_metadata() or ())
            print(json.dumps({
                "call": name,
                "messages": messages,
                "status": responses.code().name,
                "details": responses.details(),
                "served_by": metadata.get("x-served-by"),
            }), flush=True)


if sys.argv[1] == "serve":
    serve()
else:
    call(sys.argv[2])

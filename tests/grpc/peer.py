"""vLLM's and Vertex AI's services of gRPC on grpcio, the library that vLLM's server and most of its clients are built on.

`peer.py serve` listens on a free port of loopback, and prints it. `peer.py call ADDRESS` makes calls, and prints a line of JSON for each.
Messages are written by hand: the fields of vllm.grpc.engine and google.cloud.aiplatform that the endpoint picker reads.
"""

import json
import signal
import sys
from concurrent import futures

import grpc

METHOD = "vllm.grpc.engine.VllmEngine"
PREDICTION = "google.cloud.aiplatform.v1beta1.PredictionService"


def field(number: int, payload: bytes) -> bytes:
    length = len(payload)
    return bytes([number << 3 | 2, length & 0x7F | 0x80, length >> 7]) + payload


def generate(_: bytes, context: grpc.ServicerContext):
    """Three chunks, and the complete response; `context.peer()` is Envoy."""
    context.send_initial_metadata((("x-served-by", "grpcio"),))
    for count in (1, 2, 3):
        yield field(1, bytes([0x0A, 1, count, 0x10, 9, 0x18, count]))
    yield field(2, bytes([0x18, 9, 0x20, 3, 0x28, 4]))


def http_body(body: dict) -> bytes:
    return field(1, b"application/json") + field(2, json.dumps(body).encode())


def predict(_: bytes, context: grpc.ServicerContext):
    """A message of a streamed chat, and its usage."""
    context.send_initial_metadata((("x-served-by", "grpcio"),))
    yield http_body({"choices": [{"delta": {"content": "hi"}}]})
    yield http_body({"usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}})


def serve() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    handlers = {"Generate": grpc.unary_stream_rpc_method_handler(generate)}
    chats = {"ChatCompletions": grpc.unary_stream_rpc_method_handler(predict)}
    services = ((METHOD, handlers), (PREDICTION, chats))
    server.add_generic_rpc_handlers(tuple(grpc.method_handlers_generic_handler(*service) for service in services))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"listening on 127.0.0.1:{port}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def call(address: str) -> None:
    chat = {"model": "gemini", "messages": [{"role": "user", "content": "hello " * 100}]}
    generate, complete = f"/{METHOD}/Generate", f"/{PREDICTION}/ChatCompletions"
    calls = {
        "text": (generate, field(3, b"hello " * 100) + bytes([0x28, 1])),
        "token ids": (generate, field(2, field(2, bytes(range(1, 100))))),
        "no input": (generate, bytes([0x28, 1])),
        "malformed": (generate, bytes([0x1A, 9])),
        "chat": (complete, field(1, b"endpoints/1") + field(2, http_body(chat))),
        "no chat": (complete, field(1, b"endpoints/1")),
    }
    with grpc.insecure_channel(address) as channel:
        for name, (method, request) in calls.items():
            responses = channel.unary_stream(method)(request, timeout=20, wait_for_ready=True)
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

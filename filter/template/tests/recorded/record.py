#!/usr/bin/env python3
"""Records the texts of chats as vLLM makes them: of each template and each body, in rendered.json. Needs vLLM 0.32 with transformers and Jinja 3.1.

Run it where vLLM is installed: python3 filter/template/tests/recorded/record.py
"""

import datetime
import json
import pathlib
import types

import transformers.utils.chat_template_utils as templates
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
from vllm.entrypoints.anthropic.serving import AnthropicServingMessages as Messages
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.renderers.hf import _detect_content_format, safe_apply_chat_template

FOLDER = pathlib.Path(__file__).parent
NOW = 1790000000
EFFORTS = ["low", "medium", "high", "xhigh", "max"]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(NOW, datetime.timezone.utc)


templates.datetime = Clock
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")
model = types.SimpleNamespace(multimodal_config=None, enable_prompt_embeds=False)


def render(template, request, messages, tools):
    params = request.build_chat_params(template, "auto").with_defaults({"tools": tools, "tokenize": False})
    chat, _, _ = parse_chat_messages(messages, model, _detect_content_format(template, default="string"))
    return safe_apply_chat_template(model, tokenizer, chat, **params.get_apply_chat_template_kwargs())


def render_chat(template, request):
    tools = None if request.tools is None else [tool.model_dump() for tool in request.tools]
    return render(template, request, request.messages, tools)


def disabled_effort(template):
    """The effort of a request that disables thinking, as the server finds it when it starts."""

    def probe(effort):
        chat = ChatCompletionRequest(messages=[{"role": "user", "content": "Hi"}], reasoning_effort=effort)
        try:
            return render_chat(template, chat)
        except Exception:
            return None

    none = probe("none")
    return "low" if none is None or any(probe(effort) == none for effort in EFFORTS) else "none"


def text(template, api, body):
    if api == "chat":
        return render_chat(template, ChatCompletionRequest.model_validate(body))
    if api == "messages":
        request = AnthropicMessagesRequest.model_validate(body)
        merges = Messages._detect_merge_inline_system(template)
        chat = Messages.to_chat_completion_request(
            request, merge_inline_system=merges, disabled_thinking_effort=disabled_effort(template)
        )
        return render_chat(template, chat)
    request = ResponsesRequest.model_validate(body)
    messages = construct_input_messages(request_instructions=request.instructions, request_input=request.input)
    return render(template, request, messages, construct_tool_dicts(request.tools, request.tool_choice))


def recorded(template, case):
    try:
        return text(template, case["api"], json.loads(json.dumps(case["body"])))
    except Exception as error:
        print(f"{case['api']}: {error}"[:200])
        return None


bodies = json.loads((FOLDER / "bodies.json").read_text())
texts = {}
for file in sorted((FOLDER / "templates").glob("*.jinja")):
    template = file.read_text()
    texts[file.stem] = {
        "content": _detect_content_format(template, default="string"),
        "texts": [recorded(template, case) for case in bodies],
    }
result = json.dumps({"now": NOW, "templates": texts}, ensure_ascii=False, indent=1)
(FOLDER / "rendered.json").write_text(result + "\n")

"""Streams of chats with OpenAI's SDK for Python: `stream.py BASE_URL TOKENS PROMPTS`, with the prompts as a JSON list.

Prints `begun` when all streams have begun, and at their end a JSON list with an object for each: the text, the ids, the reasons of its end, and the
tokens, as the SDK has returned them.
"""

import asyncio
import json
import sys

from openai import AsyncOpenAI

base_url, tokens, prompts = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
missing = len(prompts)


async def stream(client: AsyncOpenAI, prompt: str) -> dict:
    global missing
    seen = {"text": "", "ids": [], "reasons": [], "tokens": 0}
    chunks = await client.chat.completions.create(
        model="demo-model",
        messages=[{"role": "user", "content": prompt}],
        max_tokens=tokens,
        stream=True,
        stream_options={"include_usage": True},
    )
    is_first = True
    async for chunk in chunks:
        if chunk.id not in seen["ids"]:
            seen["ids"].append(chunk.id)
        for choice in chunk.choices:
            seen["text"] += choice.delta.content or ""
            if choice.finish_reason:
                seen["reasons"].append(choice.finish_reason)
        if chunk.usage:
            seen["tokens"] = chunk.usage.completion_tokens
        if is_first:
            is_first = False
            missing -= 1
            if missing == 0:
                print("begun", flush=True)
    return seen


async def main() -> None:
    async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        print(json.dumps(await asyncio.gather(*(stream(client, prompt) for prompt in prompts))), flush=True)


asyncio.run(main())

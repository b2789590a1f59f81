"""Stored responses and conversations with OpenAI's SDK for Python: `stored.py BASE_URL`. Fails when a request does not reach the server that
stores what it names, because the server responds with 404."""

import sys

from openai import OpenAI

CHATS = 6
TURNS = 4


def turn(client: OpenAI, number: int, **named: str) -> str:
    """The id of the response; of two turns one is streamed."""
    request = {"model": "demo-model", "input": f"turn {number}", **named}
    if number % 2:
        return client.responses.create(**request).id
    events = list(client.responses.create(**request, stream=True))
    assert events[-1].type == "response.completed", events
    return events[0].response.id


with OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0) as client:
    for chat in range(CHATS):
        named = {}
        for number in range(TURNS):
            previous = turn(client, chat + number, **named)
            named = {"previous_response_id": previous}
        assert client.responses.retrieve(previous).id == previous
        assert client.responses.cancel(previous).id == previous
        client.responses.delete(previous)
    for chat in range(CHATS):
        conversation = client.conversations.create(items=[{"role": "user", "content": "hi"}]).id
        for number in range(TURNS):
            turn(client, number, conversation=conversation)
        assert client.conversations.retrieve(conversation).id == conversation
        client.conversations.delete(conversation)

"""Requests to the programs of a test, and waits for their state."""

import json
import time
import urllib.request

DEADLINE_SECONDS = 60


def get(url, body=None):
    """The text of a response; with a body, to a POST of it as JSON."""
    request = urllib.request.Request(url, body and json.dumps(body).encode(), {"content-type": "application/json"} if body else {})
    with urllib.request.urlopen(request, timeout=5) as response:
        return response.read().decode()


def until(text, holds, fail):
    """Waits until it holds; else calls `fail` with the text and the last error."""
    end, reason = time.monotonic() + DEADLINE_SECONDS, "it does not hold"
    while time.monotonic() < end:
        try:
            if holds():
                return
        except OSError as failed:
            reason = failed
        time.sleep(0.05)
    fail(f"not within {DEADLINE_SECONDS} s: {text}: {reason}")

"""Bodies of requests, read whole and checked before anything parses them into documents.

Validation reports every problem of a document, so that a body of 0.9 MB with 300,000 wrong values held the event loop
for 10 s. A document that no route can want is therefore refused first, in a thread and in bounded time.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.types import Message, Receive

from fairlead.service.api.error_responses import ApiError
from fairlead.service.api.limits import Limits


async def read_body(receive: Receive, limits: Limits) -> bytes | None:
    """The whole body, once it is known to be harmless; None if the client has gone."""
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > limits.body_bytes:
            raise too_large(limits)
        more = message.get("more_body", False)
    if needs_a_closer_look(body, limits):
        await asyncio.to_thread(check_document, bytes(body), limits)
    return bytes(body)


def received_again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns the body first, and then what comes after it."""
    left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receiving() -> Message:
        return left.pop() if left else await receive()

    return receiving


def needs_a_closer_look(body: bytearray, limits: Limits) -> bool:
    """Whether the document may be large, deep or contain what is not text. Counting bytes takes microseconds."""
    brackets = body.count(b"[") + body.count(b"{")
    if brackets > limits.body_depth or body.count(b",") + brackets > limits.body_values:
        return True
    # Escapes may be halves of a character, and null bytes mean UTF-16 or UTF-32, which JSON parsers accept.
    return b"\\u" in body or b"\0" in body or not _is_utf8(body)


def check_document(body: bytes, limits: Limits) -> None:
    """Raise an error if the JSON is too large, too deep or has half a character. What is not JSON is left alone."""
    try:
        document = json.loads(body)
    except RecursionError:
        raise _too_deep(limits) from None
    except ValueError:
        return
    values = 0
    left: list[tuple[Any, int]] = [(document, 1)]
    while left:
        value, depth = left.pop()
        values += 1
        if isinstance(value, str):
            _check_text(value)
        elif isinstance(value, (dict, list)):
            if values + len(left) + len(value) > limits.body_values:
                raise _too_many(limits)
            if depth > limits.body_depth:
                raise _too_deep(limits)
            if isinstance(value, dict):
                for key in value:
                    _check_text(key)
            left += [(part, depth + 1) for part in (value.values() if isinstance(value, dict) else value)]


def too_large(limits: Limits) -> ApiError:
    problem = f"the body is larger than {limits.body_bytes} bytes"
    return ApiError(413, "too_large", problem, "send less; data belongs in files")


def _too_many(limits: Limits) -> ApiError:
    problem = f"the body has more than {limits.body_values} values"
    return ApiError(422, "invalid_request", problem, "send less; data belongs in files")


def _too_deep(limits: Limits) -> ApiError:
    problem = f"the body is nested too deeply; at most {limits.body_depth} levels are accepted"
    return ApiError(422, "invalid_request", problem, "correct it and send it again")


def _check_text(text: str) -> None:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        problem = "the body contains a lone surrogate (half of a UTF-16 pair), which is not a character"
        raise ApiError(422, "invalid_request", problem, "correct it and send it again")


def _is_utf8(body: bytearray) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True

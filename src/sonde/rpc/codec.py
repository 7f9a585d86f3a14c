"""The bytes on the wire: dynolog's framing, a native int32 length and then that many bytes of JSON.

    0c 00 00 00  {"status":1}          (the length counts the JSON only; this host's byte order)

Text is compact, its keys sorted, as dynolog's own replies are. It is pure ASCII: any character can be written that
way, also the lone surrogates that a request may have brought.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

from sonde.errors import RpcError

LENGTH = struct.Struct("=i")
REQUEST_LIMIT = 2**20  # bytes
REPLY_LIMIT = 2**31 - 1  # what the prefix can say

Message = dict[str, Any]


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def encode(message: Mapping[str, object]) -> bytes:
    """A framed message. Raises ValueError or TypeError for what JSON cannot say (NaN, infinity, an object)."""
    body = _encoder.encode(message).encode("ascii")
    if len(body) > REPLY_LIMIT:
        raise ValueError(f"a message of {len(body)} bytes cannot be framed")
    return LENGTH.pack(len(body)) + body


def parse_length(prefix: bytes, limit: int = REQUEST_LIMIT) -> int:
    """The length a prefix announces; RpcError when no message can have it."""
    length: int = LENGTH.unpack_from(prefix)[0]
    if not 0 < length <= limit:
        raise RpcError(
            "bad-length",
            f"a message of {length} bytes is announced; it must have 1 to {limit}",
            hint="a message is a native int32 length, then JSON",
        )
    return length


def is_hello(data: bytes) -> bool:
    """Does a client begin a handshake of TLS (16 03 .. .. .. 01: RFC 8446, 4.1.2) where a message should begin?

    The first four bytes may be the length of a message; the sixth, the second of a JSON text, cannot.
    """
    return data[:2] == b"\x16\x03" and data[5:6] == b"\x01"


def decode(body: bytes) -> Message:
    """The JSON object of a message, or RpcError."""
    try:
        message = _decoder.decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, a number of 5,000 digits, 1,000 brackets
        raise RpcError("bad-json", f"not JSON: {str(error)[:200]}") from None
    if not isinstance(message, dict):
        raise RpcError("bad-request", f"a message is a JSON object, not {type(message).__name__}")
    return message


def error_reply(error: RpcError) -> Message:
    return {"ok": False, "error": {"code": error.code, "message": str(error), "hint": error.hint}}


def parse_error(reply: Mapping[str, object]) -> RpcError | None:
    """The error a reply carries; None when it is an answer. dynolog's replies have no `ok` and are answers."""
    if reply.get("ok") is not False:
        return None
    error = reply.get("error")
    if not isinstance(error, dict):
        return RpcError("unknown", "the daemon refused and gave no reason")
    code, message, hint = (str(error.get(key, "")) for key in ("code", "message", "hint"))
    return RpcError(code or "unknown", message or "the daemon gave no message", hint=hint)

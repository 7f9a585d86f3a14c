"""The blocking client, against servers that behave badly and one that behaves as dynolog does."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sonde.errors import Denied, RpcError, TimedOut, Unavailable, UsageError
from sonde.rpc.client import call


@contextlib.contextmanager
def answering(reply: bytes, *, read: bool = True, pause: float = 0.0) -> Iterator[str]:
    """A server that sends these bytes to whoever comes first, and closes."""

    def serve() -> None:
        sock, _ = server.accept()
        with sock, contextlib.suppress(OSError):
            if read:
                sock.recv(65536)
            time.sleep(pause)
            sock.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


def framed(body: bytes) -> bytes:
    return struct.pack("=i", len(body)) + body


def test_a_reply_of_dynolog_is_returned_as_it_is() -> None:
    with answering(framed(b'{"version":"0.6.0"}')) as address:
        assert call(address, "getVersion") == {"version": "0.6.0"}


def test_dynologs_way_to_refuse_is_explained() -> None:
    with answering(b"") as address, pytest.raises(RpcError) as refused:
        call(address, "metrics.snapshot")

    assert refused.value.code == "closed"
    assert "dynolog" in refused.value.hint


def test_an_error_reply_is_raised_with_its_parts() -> None:
    with answering(framed(b'{"error":{"code":"denied","hint":"h","message":"m"},"ok":false}')) as address:
        with pytest.raises(RpcError) as refused:
            call(address, "trace.start")

    assert (refused.value.code, str(refused.value), refused.value.hint) == ("denied", "m", "h")


@pytest.mark.parametrize("reply", [b"\x05", struct.pack("=i", 0), struct.pack("=i", -1), framed(b"{x"), framed(b"[]")])
def test_a_malformed_reply_is_an_rpc_error(reply: bytes) -> None:
    with answering(reply) as address, pytest.raises(RpcError):
        call(address, "getStatus")


def test_nobody_there_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"unix:{tmp_path}/rpc.sock"):
        with pytest.raises(Unavailable) as refused:
            call(address, "getStatus")

        assert "sonde daemon" in refused.value.hint


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_socket_this_user_may_not_open_is_denied(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{tmp_path}/rpc.sock")
        server.listen()
        (tmp_path / "rpc.sock").chmod(0o600)
        os.seteuid(65534)
        try:
            with pytest.raises((Denied, Unavailable)):
                call(f"unix:{tmp_path}/rpc.sock", "getStatus")
        finally:
            os.seteuid(0)


def test_an_answer_that_does_not_come_has_timed_out() -> None:
    with answering(b"", pause=0.3) as address, pytest.raises(TimedOut, match=r"within 0\.1 s"):
        call(address, "getStatus", timeout=0.1)


def test_an_answer_that_trickles_does_not_stretch_the_deadline() -> None:
    def serve() -> None:
        sock, _ = server.accept()
        with sock, contextlib.suppress(OSError):
            for _ in range(50):
                sock.sendall(b"\x7f")
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        begun = time.monotonic()
        with pytest.raises((TimedOut, RpcError)):
            call(f"127.0.0.1:{server.getsockname()[1]}", "getStatus", timeout=0.3)
        took = time.monotonic() - begun
        thread.join(10)

    assert took < 2


def test_what_is_no_address_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        call("nowhere", "getStatus")


def test_the_client_imports_little() -> None:
    code = "import sys, sonde.rpc.client; print(' '.join(m for m in sys.modules if m in %r))"
    heavy = (
        "logging",
        "asyncio",
        "ssl",
        "typing_extensions",
        "dataclasses",
        "subprocess",
        "urllib.request",
        "http.client",
    )

    printed = subprocess.run([sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True)

    assert printed.stdout.split() == []

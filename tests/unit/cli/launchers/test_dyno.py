"""`dyno`, held against recorded exchanges: what it sends, byte for byte, and what it prints of the answer."""

from __future__ import annotations

import contextlib
import shlex
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.cli.launchers.dyno import main
from sonde.dialects.dynolog import gputrace
from sonde.errors import SondeError
from sonde.tracing.kineto import Options

CASES = Path(__file__).parents[3] / "fixtures" / "dynolog"


class Case(NamedTuple):
    words: list[str]
    request: bytes
    reply: bytes
    stdout: str
    stderr: str
    code: int


def read_case(name: str) -> Case:
    sections = {}
    for section in (CASES / f"{name}.txt").read_text().split("=== ")[1:]:
        title, _, body = section.partition("\n")
        sections[title] = body.removesuffix("\n")
    words = shlex.split(sections["words"])
    request, reply = framed(sections["request"]), framed(sections["reply"])
    stdout, stderr = (sections[name] and sections[name] + "\n" for name in ("stdout", "stderr"))
    return Case(words, request, reply, stdout, stderr, int(sections["exit code"]))


def framed(section: str) -> bytes:
    length, _, text = section.partition("\n")
    return bytes.fromhex(length) + text.encode()


class Dynolog:
    """Speaks as dynolog does: the length in a single read, one exchange per connection, then it closes."""

    def __init__(self, server: socket.socket, reply: bytes) -> None:
        self.port = server.getsockname()[1]
        self.request = b""
        self._server = server
        self._reply = reply

    def serve(self) -> None:
        try:
            sock, _ = self._server.accept()
        except OSError:
            return  # nobody came
        with sock, contextlib.suppress(OSError):
            prefix = sock.recv(4)
            body = b""
            length = int.from_bytes(prefix, "little")
            while len(body) < length:
                body += sock.recv(length - len(body))
            self.request = prefix + body
            sock.sendall(self._reply)


@contextlib.contextmanager
def dynolog(reply: bytes) -> Iterator[Dynolog]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        running = Dynolog(server, reply)
        thread = threading.Thread(target=running.serve)
        thread.start()
        try:
            yield running
        finally:
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


@pytest.mark.parametrize("name", sorted(path.stem for path in CASES.glob("*.txt")))
def test_an_exchange_is_as_recorded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    case = read_case(name)
    with dynolog(case.reply) as running:
        code = main(["--hostname", "127.0.0.1", "--port", str(running.port), *case.words])
    printed = capsys.readouterr()

    assert running.request == case.request
    assert printed.out == case.stdout
    assert printed.err == case.stderr.replace("ADDRESS", f"127.0.0.1:{running.port}")
    assert code == case.code


def test_host_and_port_may_stand_after_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    case = read_case("gputrace")
    with dynolog(case.reply) as running:
        code = main([*case.words, "--hostname=127.0.0.1", f"--port={running.port}"])

    assert (code, running.request) == (0, case.request)
    assert capsys.readouterr().out == case.stdout


def test_a_refused_connection_is_a_message_and_not_a_panic(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    code = main(["--hostname", "127.0.0.1", "--port", str(port), "status"])
    printed = capsys.readouterr()

    assert code == 3
    assert printed.out == ""
    assert f"nothing answers on 127.0.0.1:{port}" in printed.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--log-file /tmp/t.json --profile-memory --iterations 5", "--profile-memory goes with a duration"),
        ("--log-file /tmp/a=b.json", "equals sign"),
        ("--log-file '/tmp/a#b.json'", "number sign"),
        ("--log-file '/tmp/a\nb.json'", "line break"),
        ("--log-file /tmp/trace", "must end in .json"),
        ("--log-file ' t.json'", "' t.json' is not an absolute path"),
        ("--log-file ''", "'' is not an absolute path"),
        ("--log-file /tmp/t.json --duration-ms 0", "at least 1 ms"),
        ("--log-file /tmp/\udce9.json", "not UTF-8"),
    ],
)
def test_what_libkineto_would_misread_is_refused_before_anybody_is_asked(
    options: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with dynolog(b"") as running:
        code = main(["--hostname", "127.0.0.1", "--port", str(running.port), "gputrace", *shlex.split(options)])

    assert code == 2
    assert words in capsys.readouterr().err
    assert running.request == b""


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("gputrace", "--log-file"),
        ("gputrace --log-file /tmp/t.json --pids 1,x", "'x' is not a number"),
        ("gputrace --log-file /tmp/t.json --duration-ms -5", "'-5' is not a number from 0"),
        ("gputrace --log /tmp/t.json", "--log"),
        ("--port 65536 status", "'65536' is not a number from 0 to 65535"),
        ("gputrase", "gputrase"),
        ("--port 5", "COMMAND"),
    ],
)
def test_a_wrong_command_line_is_explained(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())

    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("words", [["help"], ["--help"], ["-h"]])
def test_help_names_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.suppress(SystemExit):
        assert main(words) == 0
    printed = capsys.readouterr().out

    assert all(name in printed for name in ("status", "version", "gputrace", "dcgm-pause", "dcgm-resume"))


def test_help_of_a_command_names_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "gputrace"]) == 0

    assert "--profile-start-iteration-roundup" in capsys.readouterr().out


def test_without_words_the_help_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2

    assert "gputrace" in capsys.readouterr().err


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ["processesMatched", "activityProfilersTriggered", "activityProfilersBusy", "status"]


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_a_reply_is_understood_or_refused(reply: dict[str, object]) -> None:
    options = Options("/tmp/t.json")
    try:
        result = gputrace.parse_result(reply)
    except SondeError:
        return
    lines = [*gputrace.result_lines(options, result), *gputrace.notes(options, result, 3)]

    assert lines
    assert all(isinstance(pid, int) for pid in result.matched + result.triggered)

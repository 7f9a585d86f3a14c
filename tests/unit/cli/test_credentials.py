from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from sonde.cli.credentials import PASSWORD, TOKEN, add_credentials, authorization
from sonde.cli.main import main
from sonde.errors import UsageError


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    monkeypatch.delenv(PASSWORD, raising=False)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_credentials(parser)
    return parser.parse_args(words)


def test_a_token_comes_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv(TOKEN, "from-environment")

    assert authorization(parsed()) == {"Authorization": "Bearer from-environment"}
    assert authorization(parsed("--token-file", str(tmp_path / "token"))) == {"Authorization": "Bearer from-file"}


def test_a_password_is_basic_authentication(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("Aladdin:open sesame\n")  # the example of RFC 7617
    expected = {"Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}

    assert authorization(parsed("--password-file", str(tmp_path / "password"))) == expected
    monkeypatch.setenv(PASSWORD, "Aladdin:open sesame")
    assert authorization(parsed()) == expected


def test_a_file_that_is_named_goes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("a:b")
    monkeypatch.setenv(TOKEN, "from-environment")

    assert authorization(parsed("--password-file", str(tmp_path / "password")))["Authorization"].startswith("Basic ")


def test_nothing_given_is_nothing_said() -> None:
    assert authorization(parsed()) == {}


@pytest.mark.parametrize(
    ("content", "option", "message"),
    [
        (b"", "--token-file", "is empty"),
        (b"\xff\xfe", "--token-file", "no text"),
        (b"two words", "--token-file", "right file"),
        (b"a\nb", "--token-file", "right file"),
        (b"only-a-password", "--password-file", "user:password"),
    ],
)
def test_what_is_no_secret_is_refused(tmp_path: Path, content: bytes, option: str, message: str) -> None:
    (tmp_path / "secret").write_bytes(content)

    with pytest.raises(UsageError, match=message):
        authorization(parsed(option, str(tmp_path / "secret")))


def test_two_ways_at_once_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give one"):
        authorization(parsed("--token-file", "a", "--password-file", "b"))
    with pytest.raises(UsageError, match="No such file"):
        authorization(parsed("--token-file", str(tmp_path / "none")))


def test_a_password_in_a_url_is_refused_without_repeating_it(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["query", "x", "--server", "http://ada:secret@127.0.0.1:1"])

    err = capsys.readouterr().err
    assert code == 2
    assert "--password-file" in err
    assert "secret" not in err

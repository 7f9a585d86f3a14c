"""Secrets from files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sonde.errors import SinkError
from sonde.sinks.credentials import Credentials


def test_without_a_file_nothing_is_sent() -> None:
    assert Credentials().headers() == {}


def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("abc\n")
    credentials = Credentials(bearer_token_file=str(path))
    assert credentials.headers() == {"Authorization": "Bearer abc"}

    path.write_text("def\n")
    os.utime(path, ns=(1, 1))

    assert credentials.headers() == {"Authorization": "Bearer def"}


def test_a_name_and_a_password_are_basic_authentication(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("open sesame\n")  # the example of RFC 7617

    headers = Credentials(username="Aladdin", password_file=str(tmp_path / "password")).headers()

    assert headers == {"Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}


def test_a_file_that_is_not_there_may_come_back(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="No such file") as caught:
        Credentials(bearer_token_file=str(tmp_path / "token")).headers()

    assert caught.value.retry

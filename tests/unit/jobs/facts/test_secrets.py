"""What is taken for a secret, and what is not."""

from __future__ import annotations

import base64
import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.jobs.facts.secrets import REDACTED, entropy, is_secret, looks_secret, redacted_options


@pytest.mark.parametrize(
    "name",
    [
        "PASSWORD",
        "DB_PASSWD",
        "MYSQL_PWD",
        "API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "SESSION_COOKIE",
        "SSH_PRIVATE",
        "X_AUTH",
        "SENTRY_DSN",
        "passphrase",
        "rd.luks.key",
        "GITHUB_PAT",
    ],
)
def test_a_name_gives_a_secret_away(name: str) -> None:
    assert is_secret(name, "x")
    assert not is_secret(name, "")


@pytest.mark.parametrize(
    "name",
    [
        "OMP_NUM_THREADS",
        "PATH",
        "KEYBOARD",
        "COMPASS",
        "MONKEYTYPE",
        "PASSENGERS",
        "SLURM_JOB_PARTITION",
        "AUTHOR",
        "PATTERN",
        "BYPASS_CACHE",
    ],
)
def test_other_names_do_not(name: str) -> None:
    assert not is_secret(name, "8")


@pytest.mark.parametrize(
    "value",
    [
        "http://ada:hunter2@proxy:3128",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "AKIAIOSFODNN7EXAMPLE",
        "0123456789abcdef0123456789abcdef01234567",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "wJalrXUtnFEMI7K7MDENGbPxRfiCYEXAMPLEKEY",
    ],
)
def test_a_form_gives_a_secret_away(value: str) -> None:
    assert looks_secret(value)


@pytest.mark.parametrize(
    "value",
    [
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-8932f937-d72c-4106-c12f-20bd9faed9f7",
        "/opt/spack/linux-rocky9-zen3/gcc-12.2.0/openmpi-4.1.5-k5ohl5z6jv3rqq3w5pmpl4bqpfr6kzvo/lib",
        "/nix/store/0c0jhzz1y0jqn5xnjfp9jlwz0dbhvyi8-python3-3.11.7/bin",
        "n[001-128],gpu[1-16]",
        "mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1",
        "1(x16),2(x8)",
        "expandable_segments:True,max_split_size_mb:512",
        "/usr/local/cuda-12.4/lib64:/opt/amazon/openmpi/lib64",
        "granularity=fine,compact,1,0",
        "https://proxy.example.org:3128",
    ],
)
def test_what_only_looks_long_is_shown(value: str) -> None:
    assert not looks_secret(value)


def test_random_keys_are_found_however_they_are_written() -> None:
    chance = random.Random(5)
    letters = string.ascii_letters + string.digits
    keys = ["".join(chance.choices(letters, k=chance.randrange(24, 64))) for _ in range(500)]
    keys += [chance.randbytes(24).hex() for _ in range(200)]
    keys += [base64.b64encode(chance.randbytes(36)).decode() for _ in range(200)]

    missed = [key for key in keys if not looks_secret(key)]

    assert len(missed) <= len(keys) * 0.02  # a long one with a slash every few letters is a path to us


def test_options_keep_everything_but_the_secret() -> None:
    text = "root=/dev/sda1 quiet token=abc ks=http://u:p@h/x mitigations=off"

    assert redacted_options(text, " ") == f"root=/dev/sda1 quiet token={REDACTED} ks={REDACTED} mitigations=off"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_any_text_is_judged(name: str, value: str) -> None:
    assert is_secret(name, value) in (True, False)
    assert redacted_options("plain", ",") == "plain"


def test_entropy_is_in_bits_per_character() -> None:
    assert entropy("abcd") == 2
    assert entropy("aaaa") == 0

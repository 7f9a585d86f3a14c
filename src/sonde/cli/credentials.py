"""Who we are for a server: a token or user:password, from a file or the environment, never from the command line.

A command line is in the process table, where every user of the machine can read it, and in the shell's history.
"""

from __future__ import annotations

import argparse
import os
from binascii import b2a_base64

from sonde.errors import UsageError
from sonde.httpclient import Tls

TOKEN = "SONDE_SERVER_TOKEN"  # noqa: S105 - the name of a variable
PASSWORD = "SONDE_SERVER_PASSWORD"  # noqa: S105


def add_credentials(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--token-file", metavar="FILE", help=f"holds a bearer token (else ${TOKEN})")
    parser.add_argument("--password-file", metavar="FILE", help=f"holds user:password (else ${PASSWORD})")
    parser.add_argument("--ca", metavar="FILE", default="", help="trust these authorities for https, not the system's")


def tls_of(args: argparse.Namespace) -> Tls:
    return Tls(ca=args.ca)


def authorization(args: argparse.Namespace) -> dict[str, str]:
    """The header that proves who we are; empty when nothing was given."""
    if args.token_file and args.password_file:
        raise UsageError("--token-file and --password-file are two ways to say who we are: give one")
    named = args.token_file or args.password_file
    token = _secret(args.token_file) if args.token_file else ("" if named else os.environ.get(TOKEN, "").strip())
    if token:
        return {"Authorization": f"Bearer {_printable(token)}"}
    password = _secret(args.password_file) if args.password_file else os.environ.get(PASSWORD, "").strip()
    if not password:
        return {}
    if ":" not in password:
        raise UsageError("a password is written as user:password")
    return {"Authorization": "Basic " + b2a_base64(password.encode(), newline=False).decode()}


def _secret(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(65536).strip()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} holds no text") from None
    if not text:
        raise UsageError(f"{path} is empty")
    return text


def _printable(token: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError("the token has characters that no token has: is it the right file?")
    return token

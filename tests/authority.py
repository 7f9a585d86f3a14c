"""Certificates for the tests of everything that speaks TLS, made by the openssl program."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Pair(NamedTuple):
    """PEM files."""

    certificate: str
    key: str


class Authority:
    """Signs certificates for this machine; its own is `ca`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = str(folder / "ca.crt")
        self._key = str(folder / "ca.key")
        openssl("req", "-x509", *_KEY, "-keyout", self._key, "-out", self.ca, "-subj", f"/CN={name}", "-days", "2")

    def signed(self, name: str, *, days: int = 2, names: str = "DNS:localhost,IP:127.0.0.1") -> Pair:
        """A certificate with its key; with days below 0 it has expired."""
        path = self._folder / name
        pair = Pair(f"{path}.crt", f"{path}.key")
        Path(f"{path}.ext").write_text(f"subjectAltName={names}\n")
        openssl("req", *_KEY, "-keyout", pair.key, "-out", f"{path}.csr", "-subj", f"/CN={name}")
        signing = ["-CA", self.ca, "-CAkey", self._key, "-CAcreateserial", "-days", str(days)]
        openssl("x509", "-req", "-in", f"{path}.csr", *signing, "-extfile", f"{path}.ext", "-out", pair.certificate)
        return pair


def openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr

"""Certificates for the tests of everything that speaks TLS, good and bad ones, made by the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

P256 = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
P224 = ("ec", "-pkeyopt", "ec_paramgen_curve:P-224")
RSA = ("rsa:3072",)
SHORT_RSA = ("rsa:2048",)
ED25519 = ("ed25519",)
USAGE = "keyUsage=critical,digitalSignature\n"
HERE = "DNS:localhost,IP:127.0.0.1,IP:::1"
_CAN_SIGN = "keyUsage=critical,keyCertSign,cRLSign"
_CONFIG = """[ca]
default_ca = here
[here]
database = {folder}/index
serial = {folder}/serial
new_certs_dir = {folder}
certificate = {folder}/ca.crt
private_key = {folder}/ca.key
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = optional
organizationName = optional
"""


class Pair(NamedTuple):
    """PEM files."""

    certificate: str
    key: str


class Authority:
    """Signs certificates for this machine; its own is `ca`."""

    def __init__(
        self,
        folder: Path,
        name: str = "authority",
        *,
        key: Sequence[str] = P256,
        usage: str = _CAN_SIGN,
        options: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = str(folder / "ca.crt")
        self._key = str(folder / "ca.key")
        named = ("-subj", f"/CN={name}", *(("-addext", usage) if usage else ()), *(options or ("-days", "2")))
        openssl("req", "-x509", "-newkey", *key, "-nodes", "-keyout", self._key, "-out", self.ca, *named)
        (folder / "ca.cnf").write_text(_CONFIG.format(folder=folder))
        (folder / "index").touch()
        (folder / "serial").write_text("1000\n")

    def signed(
        self,
        name: str,
        *,
        days: int = 2,
        names: str = HERE,
        key: Sequence[str] = P256,
        extensions: str = USAGE,
        digest: str = "sha256",
        subject: str = "",
    ) -> Pair:
        """A certificate and its key. With days below 0 it has expired, without names and extensions it is version 1."""
        path = self._folder / name
        pair = Pair(f"{path}.crt", f"{path}.key")
        text = extensions + (f"subjectAltName={names}\n" if names else "")
        Path(f"{path}.ext").write_text(text)
        self._request(name, key, subject)
        signing = ["-CA", self.ca, "-CAkey", self._key, "-CAcreateserial", "-days", str(days), f"-{digest}"]
        extending = ["-extfile", f"{path}.ext"] if text else []
        openssl("x509", "-req", "-in", f"{path}.csr", *signing, *extending, "-out", pair.certificate)
        return pair

    def signed_for_later(self, name: str) -> Pair:
        """A certificate that is not valid yet."""
        path = self._folder / name
        Path(f"{path}.ext").write_text(f"{USAGE}subjectAltName={HERE}\n")
        self._request(name, P256, "")
        dates = ["-startdate", "20400101000000Z", "-enddate", "20410101000000Z"]
        files = ["-in", f"{path}.csr", "-out", f"{path}.crt", "-extfile", f"{path}.ext", "-notext"]
        self._ca("-batch", *dates, *files)
        return Pair(f"{path}.crt", f"{path}.key")

    def expire(self) -> None:
        """Let its own certificate be of yesterday; what it signs from now on is as it was."""
        openssl("x509", "-in", self.ca, "-signkey", self._key, "-days", "-1", "-out", self.ca)

    def _request(self, name: str, key: Sequence[str], subject: str) -> None:
        path = self._folder / name
        files = ["-keyout", f"{path}.key", "-out", f"{path}.csr"]
        openssl("req", "-newkey", *key, "-nodes", *files, "-subj", subject or f"/CN={name}")

    def revoking(self, *pairs: Pair, name: str = "ca.crl", dates: Sequence[str] = ("-crldays", "2")) -> str:
        """A revocation list with these on it, and those of earlier ones."""
        for pair in pairs:
            self._ca("-revoke", pair.certificate)
        path = str(self._folder / name)
        self._ca("-gencrl", *dates, "-out", path)
        return path

    def _ca(self, *arguments: str) -> None:
        openssl("ca", "-config", str(self._folder / "ca.cnf"), *arguments)

    def directory(self, role: str, pair: Pair, into: Path, *, crl: str = "", ca: str = "") -> str:
        """A directory of a server or a client, as sonde wants it."""
        into.mkdir(mode=0o700)
        shutil.copy(pair.certificate, into / f"{role}.crt")
        shutil.copy(pair.key, into / f"{role}.key")
        shutil.copy(ca or self.ca, into / "ca.crt")
        if crl:
            shutil.copy(crl, into / "ca.crl")
        for path in into.iterdir():
            path.chmod(0o600)
        return str(into)


def openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr

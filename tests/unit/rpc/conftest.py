"""Certificates of every kind, good and bad, each made when a test asks for it and then kept for all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.authority import ED25519, P224, RSA, SHORT_RSA, USAGE, Authority, Pair

_SERVER_ONLY = USAGE + "extendedKeyUsage=serverAuth\n"
_CLIENT_ONLY = USAGE + "extendedKeyUsage=clientAuth\n"


class Stock:
    """`stock["expired"]` is a pair of an authority that everybody here trusts, but for those of a `stranger`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.authority = Authority(folder / "authority")
        self._made: dict[str, Pair] = {}
        signed = self.authority.signed
        self._recipes: dict[str, Callable[[], Pair]] = {
            "server": lambda: signed("server"),
            "root": lambda: signed("root"),
            "nobody": lambda: signed("nobody"),
            "ghost": lambda: signed("no-such-user"),
            "rsa": lambda: signed("rsa", key=RSA),
            "ed25519": lambda: signed("ed25519", key=ED25519),
            "expired": lambda: signed("expired", days=-1),
            "early": lambda: self.authority.signed_for_later("early"),
            "short": lambda: signed("short", key=SHORT_RSA),
            "p224": lambda: signed("p224", key=P224),
            "sha1": lambda: signed("sha1", digest="sha1"),
            "md5": lambda: self.rsa_authority.signed("md5", digest="md5"),
            "v1": lambda: signed("v1", names="", extensions=""),
            "ca-as-leaf": lambda: signed("leaf", extensions=f"basicConstraints=critical,CA:true\n{USAGE}"),
            "no-usage": lambda: signed("no-usage", extensions=""),
            "cannot-sign": lambda: signed("cannot-sign", extensions="keyUsage=dataEncipherment\n"),
            "for-servers": lambda: signed("for-servers", extensions=_SERVER_ONLY),
            "for-clients": lambda: signed("for-clients", extensions=_CLIENT_ONLY),
            "no-cn": lambda: signed("no-cn", subject="/O=cluster"),
            "two-cns": lambda: signed("two-cns", subject="/CN=ada/CN=root"),
            "elsewhere": lambda: signed("elsewhere", names="DNS:elsewhere.example,IP:192.0.2.7"),
            "nameless": lambda: signed("nameless", names=""),
            "revoked": lambda: signed("revoked"),
            "stranger": lambda: Authority(folder / "stranger", "stranger").signed("root"),
            "impostor": lambda: Authority(folder / "impostor", "authority").signed("root"),
        }
        self._crl = ""
        self._rsa_authority: Authority | None = None

    def __getitem__(self, name: str) -> Pair:
        if name not in self._made:
            self._made[name] = self._recipes[name]()
        return self._made[name]

    @property
    def names(self) -> list[str]:
        return list(self._recipes)

    @property
    def rsa_authority(self) -> Authority:
        """Another one that is trusted: only RSA is signed with MD5."""
        if self._rsa_authority is None:
            self._rsa_authority = Authority(self._folder / "rsa", "rsa authority", key=RSA)
        return self._rsa_authority

    @property
    def crl(self) -> str:
        """The list with `revoked` on it."""
        self._crl = self._crl or self.authority.revoking(self["revoked"])
        return self._crl

    @property
    def both_authorities(self) -> str:
        path = self._folder / "both.crt"
        path.write_text(Path(self.authority.ca).read_text() + Path(self.rsa_authority.ca).read_text())
        return str(path)


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    return Stock(tmp_path_factory.mktemp("stock"))


@pytest.fixture
def directory(stock: Stock, tmp_path: Path) -> Callable[..., Path]:
    """A directory with a pair of the stock: `directory("server", "expired")`."""

    def make(role: str, name: str, *, crl: str = "", ca: str = "") -> Path:
        number = len(list(tmp_path.glob("certs*")))
        return Path(stock.authority.directory(role, stock[name], tmp_path / f"certs{number}", crl=crl, ca=ca))

    return make

"""`sonde certs show`: what is in certificates, revocation lists and directories of them, and what is wrong with it.

Read with sonde's own reader of DER, so that it works where the package cryptography is not.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sonde.cli.terminal import paint, table
from sonde.errors import ConfigError, Denied, SondeError
from sonde.rpc.certificates import Role, day, flaws_of_authority, flaws_of_leaf, flaws_of_list
from sonde.rpc.tls import (
    Defect,
    client_context,
    defects_of_files,
    defects_of_modes,
    read_certificates,
    read_file,
    read_lists,
    read_material,
    server_context,
)
from sonde.rpc.x509 import Certificate, RevocationList


class Shown(NamedTuple):
    """A file or a directory: what it holds, and what is wrong with it."""

    path: str
    facts: dict[str, str]
    defects: list[Defect]
    judged: bool = True  # false: as a part of its directory, whose verdict follows


class _Locked(Exception):
    """The key is encrypted, and nobody is asked for its password only to look."""


def show(paths: Sequence[str], *, as_json: bool) -> int:
    shown = [one for path in paths for one in _look(path)]
    if as_json:
        print(json.dumps([_json(one) for one in shown], indent=2))
    else:
        print("\n\n".join(_text(one) for one in shown))
    return 1 if any(one.defects for one in shown) else 0


def _look(path: str) -> Iterator[Shown]:
    if os.path.isdir(path):
        yield from _directory(path)
    elif b"BEGIN X509 CRL" in read_file(path):
        for found in read_lists(path):
            yield Shown(path, _list_facts(found), _list_defects(path, found))
    else:
        for certificate in read_certificates(path):
            yield Shown(path, _facts(certificate), _defects(path, certificate))


def _directory(path: str) -> Iterator[Shown]:
    both: tuple[Role, Role] = ("server", "client")
    roles = [role for role in both if os.path.exists(os.path.join(path, f"{role}.crt"))]
    for role in roles:
        yield from _role(path, role)
    if not roles:
        if not os.path.exists(os.path.join(path, "ca.crt")):
            raise ConfigError(f"{path} holds no certificates", hint="server.crt, client.crt or ca.crt is looked for")
        for name in ("ca.crt", "ca.crl"):
            if os.path.exists(os.path.join(path, name)):
                yield from _look(os.path.join(path, name))


def _role(path: str, role: Role) -> Iterator[Shown]:
    """A directory as the daemon or a client would load it."""
    material = read_material(path, role)
    yield Shown(material.certificate_path, _facts(material.chain[0]), [], judged=False)
    for authority in material.authorities:
        yield Shown(material.path("ca.crt"), _facts(authority), [], judged=False)
    for found in material.lists:
        yield Shown(material.path("ca.crl"), _list_facts(found), [], judged=False)
    defects = [*defects_of_modes(path, role), *defects_of_files(material, time.time())]
    opened = "as a whole"
    if not defects:
        try:
            (server_context if role == "server" else client_context)(path, password=_locked)
        except _Locked:
            opened = f"as a whole, but for {role}.key, which is encrypted and was not opened"
        except Denied:
            raise
        except SondeError as error:
            defects = [Defect("", str(error), error.hint, "refused")]
    yield Shown(path, {"kind": f"directory of a {role}", "checked": opened}, defects)


def _locked(path: str) -> str:
    raise _Locked


def _defects(path: str, certificate: Certificate) -> list[Defect]:
    now = time.time()
    if certificate.authority:
        flaws = flaws_of_authority(certificate, now)
    else:
        flaws = flaws_of_leaf(certificate, _role_of(certificate), now)
    return [Defect(path, flaw.text, flaw.hint, flaw.code) for flaw in flaws]


def _role_of(certificate: Certificate) -> Role:
    if certificate.purposes is not None:
        return "server" if "serverAuth" in certificate.purposes else "client"
    return "server" if certificate.names else "client"


def _list_defects(path: str, found: RevocationList) -> list[Defect]:
    beside = os.path.join(os.path.dirname(path), "ca.crt")
    flaws = list(flaws_of_list(found, read_certificates(beside) if os.path.exists(beside) else (), time.time()))
    known = os.path.exists(beside)
    return [Defect(path, flaw.text, flaw.hint, flaw.code) for flaw in flaws if known or flaw.code != "issuer"]


def _facts(certificate: Certificate) -> dict[str, str]:
    usage = "none" if certificate.usage is None else ", ".join(sorted(certificate.usage))
    purposes = "everything" if certificate.purposes is None else ", ".join(sorted(certificate.purposes))
    return {
        "kind": "authority" if certificate.authority else f"certificate of a {_role_of(certificate)}",
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "serial": f"{certificate.serial:x}",
        "valid": f"{day(certificate.not_before)} to {day(certificate.not_after)}",
        "key": f"{certificate.key.kind}, {certificate.key.bits} bits",
        "signature": f"{certificate.signature}, X.509 version {certificate.version}",
        "usage": f"{usage}; for {purposes}",
        "names": ", ".join(certificate.names) or "none",
    }


def _list_facts(found: RevocationList) -> dict[str, str]:
    until = "for ever" if found.next_update is None else day(found.next_update)
    return {
        "kind": "revocation list",
        "issuer": found.issuer,
        "valid": f"{day(found.this_update)} to {until}",
        "signature": found.signature,
        "revoked": ", ".join(f"{serial:x}" for serial in sorted(found.serials)) or "nothing",
    }


def _text(one: Shown) -> str:
    rows = [[f"  {name}", str(value)] for name, value in one.facts.items()]
    lines = [paint(one.path, "bold"), table(rows)]
    for defect in one.defects:
        named = f"{defect.path} {defect.text}".strip()
        lines += [f"  {paint('refused', 'red')}: {named}", f"    → {defect.hint}"]
    if one.judged and not one.defects:
        alone = "" if "checked" in one.facts else " that can be made of it alone"
        lines.append(f"  {paint('good', 'green')}: it passes every check{alone}")
    return "\n".join(lines)


def _json(one: Shown) -> dict[str, Any]:
    if not one.judged:
        return {"path": one.path, **one.facts}
    defects = [{"code": d.code, "message": f"{d.path} {d.text}".strip(), "hint": d.hint} for d in one.defects]
    return {"path": one.path, **one.facts, "good": not defects, "defects": defects}

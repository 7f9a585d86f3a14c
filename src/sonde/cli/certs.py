"""Certificates for mutual TLS: an authority of your own, a certificate per node and per user.

  sonde certs init                                         an authority, once, on a machine that you trust
  sonde certs host n1 --name n1.cluster --address 10.0.0.1   for a node: copy DIR/hosts/n1 there
  sonde certs host 'n[1-64]' --domain cluster              for many
  sonde certs client ada                                   for a user: ada drives her own processes, root all
  sonde certs revoke ada                                   no longer; copy ca.crl to the nodes, then SIGHUP
  sonde certs show /etc/sonde/certs                        explain what is there, and whether it passes every check

The daemon is started with --certs-dir DIR, other commands are given --certs-dir DIR or $SONDE_CERTS_DIR.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sonde.cli.arguments import count
from sonde.cli.progress import Progress
from sonde.cli.terminal import table
from sonde.daemon.paths import default_paths
from sonde.errors import ParseError, Unavailable, UsageError
from sonde.rpc.certificates import day

if TYPE_CHECKING:
    from sonde.cli.authority import Authority, Issued, Making, Wanted

_TEN_YEARS = 3653
_TWO_YEARS = 730
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@$-]{0,63}")  # what a CN may hold (64: RFC 5280, A.1) and a directory be


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="init|host|client|revoke|show")
    init = verbs.add_parser("init", help="make an authority")
    init.add_argument("--cn", default="sonde authority", metavar="TEXT", help="its name (default: sonde authority)")
    _add_making(init, _TEN_YEARS)
    host = verbs.add_parser("host", help="certificates for nodes")
    host.add_argument("node", nargs="+", help="its name; host lists too, n[1-64]")
    host.add_argument("--name", action="append", default=[], metavar="NAME", help="another name it is called by")
    host.add_argument("--address", action="append", default=[], metavar="IP", help="an address it is called by")
    host.add_argument("--domain", action="append", default=[], metavar="D", help="NODE.D is a name of each node, too")
    _add_making(host, _TWO_YEARS)
    client = verbs.add_parser("client", help="certificates for users")
    client.add_argument("user", nargs="+", help="its name on the nodes; root may drive everything")
    _add_making(client, _TWO_YEARS)
    revoke = verbs.add_parser("revoke", help="revoke certificates, or write the revocation list anew")
    revoke.add_argument("name", nargs="*", help="a node or a user; without one the list is only written anew")
    revoke.add_argument("--kind", choices=("host", "client"), help="when a node and a user have the same name")
    revoke.add_argument("--days", type=count, metavar="N", help="good for N days (default: as long as the authority)")
    _add_common(revoke)
    show = verbs.add_parser("show", help="explain certificates and directories of them")
    show.add_argument("path", nargs="+", help="a certificate, a revocation list, or a directory")
    show.add_argument("--json", action="store_true", help="print a list")


def _add_making(parser: argparse.ArgumentParser, days: int) -> None:
    parser.add_argument("--days", type=count, default=days, metavar="N", help=f"valid for N days (default: {days})")
    parser.add_argument("--rsa", action="store_true", help="an RSA key of 3072 bits (default: EC P-256)")
    parser.add_argument("--force", action="store_true", help="replace what is there")
    _add_common(parser)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="DIR", help="of the authority (default: authority beside the configuration)")
    parser.add_argument("--json", action="store_true", help="print an object")


def run(args: argparse.Namespace) -> int:
    if args.verb == "show":
        from sonde.cli.certs_show import show

        return show(args.path, as_json=args.json)
    try:
        from sonde.cli.authority import Authority
    except ImportError:
        raise Unavailable(
            "making certificates needs the Python package cryptography",
            hint="pip install 'sonde[certs]', or apt install python3-cryptography; the daemon itself does without it",
        ) from None

    directory = args.dir or os.path.join(os.path.dirname(default_paths().config), "authority")
    return {"init": _init, "host": _host, "client": _client, "revoke": _revoke}[args.verb](args, Authority(directory))


def _init(args: argparse.Namespace, authority: Authority) -> int:
    made = authority.create(args.cn, _making(args))
    if args.json:
        print(json.dumps({"directory": authority.directory, "subject": made.subject, "not_after": made.not_after}))
        return 0
    print(f"{authority.directory}: {made.subject}, {made.key.kind}, until {day(made.not_after)}")
    print("ca.key signs for everybody: keep it here, and a copy of it where nobody looks")
    return 0


def _host(args: argparse.Namespace, authority: Authority) -> int:
    from sonde.cli.authority import Wanted

    nodes = _expanded(args.node)
    if len(nodes) > 1 and (args.name or args.address):
        raise UsageError("--name and --address are of one node", hint="--domain is for all of them")
    made = []
    with Progress("signing") as progress:
        for number, node in enumerate(nodes):
            progress.show(number / len(nodes), node)
            address = [node] if _is_address(node) else []
            names = [] if address else [node, *(f"{node}.{domain}" for domain in args.domain)]
            wanted = Wanted("host", node, [*names, *args.name], [*address, *args.address])
            made.append(_issue(args, authority, wanted))
    return _told(made, "copy each to its node and start the daemon there with --certs-dir", as_json=args.json)


def _client(args: argparse.Namespace, authority: Authority) -> int:
    from sonde.cli.authority import Wanted

    made = [_issue(args, authority, Wanted("client", user)) for user in args.user]
    return _told(made, "give each to its user, for --certs-dir or $SONDE_CERTS_DIR", as_json=args.json)


def _issue(args: argparse.Namespace, authority: Authority, wanted: Wanted) -> Issued:
    name = wanted.name
    if not _NAME.fullmatch(name) and not (wanted.kind == "host" and _is_address(name)):
        raise UsageError(f"{name!r} cannot be the name of a certificate", hint="letters, digits and _.@$-, at most 64")
    return authority.issue(wanted, _making(args))


def _making(args: argparse.Namespace) -> Making:
    from sonde.cli.authority import Making

    return Making(_days(args), rsa=args.rsa, force=args.force)


def _days(args: argparse.Namespace) -> int:
    days: int = args.days
    if not 1 <= days <= 36500:
        raise UsageError("--days: from a day to a hundred years")
    return days


def _expanded(texts: Sequence[str]) -> list[str]:
    from sonde.schedulers.hostlist import expand

    try:
        return [node for text in texts for node in ([text] if _is_address(text) else expand(text))]
    except ParseError as error:
        raise UsageError(str(error)) from None


def _is_address(text: str) -> bool:
    from ipaddress import ip_address

    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _told(made: Sequence[Issued], advice: str, *, as_json: bool) -> int:
    if as_json:
        print(json.dumps([_issued(one) for one in made]))
        return 0
    rows = [[one.directory, ", ".join(one.certificate.names) or one.certificate.subject] for one in made]
    print(table([[*row, f"until {day(one.certificate.not_after)}"] for row, one in zip(rows, made, strict=True)]))
    print(advice)
    return 0


def _issued(one: Issued) -> dict[str, object]:
    certificate = one.certificate
    return {
        "kind": one.kind,
        "name": one.name,
        "directory": one.directory,
        "serial": f"{certificate.serial:x}",
        "names": certificate.names,
        "not_after": certificate.not_after,
    }


def _revoke(args: argparse.Namespace, authority: Authority) -> int:
    if args.days is not None:
        _days(args)
    chosen = [one for name in args.name for one in _named(authority, name, args.kind)]
    written = authority.revoke(chosen, days=args.days)
    if args.json:
        print(json.dumps({"revoked": [_issued(one) for one in chosen], "lists": written}))
        return 0
    for one in chosen:
        print(f"revoked: {one.kind} {one.name}, serial {one.certificate.serial:x}")
    print("\n".join(f"written: {path}" for path in written))
    print("copy ca.crl into the --certs-dir of every node and user, then: kill -HUP of each daemon")
    return 0


def _named(authority: Authority, name: str, kind: str | None) -> list[Issued]:
    """The certificates of a name that are not revoked yet: also those that --force has replaced since."""
    every = [one for one in authority.issued() if one.name == name and kind in (None, one.kind)]
    if len({one.kind for one in every}) > 1:
        raise UsageError(f"{name} is a node and a user", hint="say which: --kind host or --kind client")
    if not every:
        raise Unavailable(f"no certificate was made for {name} here", hint=f"the directory is {authority.directory}")
    found = [one for one in every if not authority.is_revoked(one)]
    if not found:
        raise Unavailable(f"every certificate of {name} is revoked already")
    return found

"""What follows a recording, on the first node of a job: the other nodes' parts, the report, the exports."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

from sonde.cli.connection import DEFAULT_PORT, tls_of
from sonde.cli.progress import Progress
from sonde.jobs import gather
from sonde.jobs.recording import About
from sonde.schedulers import hostlist
from sonde.schedulers.hosts import hosts_of

_PATIENCE = 20.0  # seconds that a part which is there may take to be finished


def nodes_of(args: argparse.Namespace, about: About) -> list[str]:
    """The hosts that the recording is to have parts of."""
    if args.hosts:
        return list(hosts_of(args.hosts))
    return [str(host) for host in (about.job or {}).get("nodes") or ()]


def is_first(about: About, nodes: Sequence[str]) -> bool:
    """Is this the node that brings the parts together?"""
    return not nodes or _short(nodes[0]) == _short(about.host)


def finish(args: argparse.Namespace, path: str, about: About) -> int:
    """Gather, report and export as asked for; 0, or 1 when something is missing."""
    nodes = nodes_of(args, about)
    if not is_first(about, nodes):
        return 0
    code = 0
    if not args.no_gather and len(nodes) > 1:
        code = _gathered(args, path, [host for host in nodes if _short(host) != _short(about.host)])
    for words in _orders(args, path):
        code = max(code, _run(words))
    return code


def _gathered(args: argparse.Namespace, path: str, others: Sequence[str]) -> int:
    unfinished = gather.wait_for(path, others, _PATIENCE)
    absent = gather.missing_parts(path, unfinished)
    failed = dict.fromkeys(absent, "it has left nothing here")
    if _has_daemon():  # else the other nodes have none either: nobody is to be waited for
        tls = tls_of(args)
        gather.measure_clocks(path, _addresses(host for host in others if host not in unfinished), tls)
        failed = fetch(path, _addresses(absent), "", tls)
    failed |= {host: "its recorder has not finished it" for host in unfinished if host not in absent}
    return tell_missing(path, failed)


def _addresses(hosts: Iterable[str]) -> dict[str, str]:
    return {host: f"{host}:{DEFAULT_PORT}" for host in hosts}


def _has_daemon() -> bool:
    from sonde import netstat
    from sonde.hostfs import HostFS

    return netstat.listening_uid(HostFS(), "127.0.0.1", DEFAULT_PORT) is not None


def fetch(path: str, addresses: Mapping[str, str], source: str, tls: object) -> dict[str, str]:
    """Fetch parts from daemons, with a bar; those that failed, and why."""
    failed = {}
    with Progress("gather") as progress:
        hosts = list(addresses)

        def moved(host: str, done: int, whole: int) -> None:
            progress.show((hosts.index(host) + done / max(1, whole)) / len(hosts), host)

        for part in gather.fetched(path, addresses, source=source, tls=tls, moved=moved):  # type: ignore[arg-type]
            if part.error:
                failed[part.host] = part.error
    return failed


def tell_missing(path: str, failed: Mapping[str, str]) -> int:
    """Name the nodes whose part is missing; 1 when there is one."""
    if not failed:
        return 0
    for host, reason in failed.items():
        print(f"sonde: record: the part of {host} is missing: {reason}", file=sys.stderr)
    hosts = hostlist.compress(tuple(failed))
    print(f"  fetch it later with: sonde record gather {path} --hosts {hosts}", file=sys.stderr)
    return 1


def _orders(args: argparse.Namespace, path: str) -> list[list[str]]:
    orders = [["export", path, "--to", name] for name in args.export]
    if args.report:
        orders.append(["report", path, "--text", "--html", os.path.join(path, "report.html")])
    return orders


def _run(words: list[str]) -> int:
    """Another command of sonde, in this process. What it lacks it says itself."""
    from sonde.cli.main import COMMANDS, main

    if words[0] not in COMMANDS:
        print(f"sonde: record: this sonde has no {words[0]}: the recording itself is in {words[1]}", file=sys.stderr)
        return 1
    try:
        return main(words)
    except ImportError as error:
        print(f"sonde: {words[0]}: {error.name} is not installed", file=sys.stderr)
        print(f"  pip install 'sonde[{words[0]}]', then: sonde {' '.join(words)}", file=sys.stderr)
        return 1
    except SystemExit as error:  # its parser has refused something
        return int(error.code or 0)


def _short(host: str) -> str:
    return host.partition(".")[0]

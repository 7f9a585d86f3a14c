"""Service discovery for Prometheus, from Slurm, Kubernetes or a host list.

sonde targets slurm                                          print what Prometheus' file_sd_configs reads
sonde targets slurm --write /etc/prometheus/sonde.json --watch 60s
sonde targets slurm --serve 127.0.0.1:1780                   the same for http_sd_configs, at /targets
sonde targets hosts 'n[1-64],gpu[01-08]' @more-hosts -       lists, a file of lists, standard input
sonde targets kubernetes --pods app=sonde                    the pods of the DaemonSet; without --pods: the nodes

A target gets the labels named by --labels. Everything known about it is there for relabelling, too, as
__meta_sonde_NAME: a label that changes, as the state does, would begin every series of the node anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from sonde.address import Address
from sonde.cli.arguments import duration
from sonde.errors import ParseError, SondeError, UsageError
from sonde.schedulers import hostlist, nodes
from sonde.schedulers.nodes import Node
from sonde.units import Duration

DEFAULT_PORT = 1779
DEFAULT_LABELS = "node,partition,namespace"
_PERIOD = Duration(60)
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", choices=("slurm", "kubernetes", "hosts"), help="who knows the nodes")
    parser.add_argument("list", nargs="*", metavar="HOSTS", help="with hosts: n[1-64], @FILE, or - for standard input")
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help=f"of the daemons (default {DEFAULT_PORT})")
    parser.add_argument("--address", choices=("address", "name"), default="address", help="where a node is reached")
    parser.add_argument(
        "--state", default="all", metavar="STATES", help="all (default), up, or some: idle,mixed,allocated; !down"
    )
    parser.add_argument(
        "--labels", default=DEFAULT_LABELS, metavar="NAMES", help=f"facts that become labels (default {DEFAULT_LABELS})"
    )
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="one more label, for all")
    parser.add_argument(
        "--extract", action="append", default=[], metavar="NAME=REGEX", help="a label out of the name or a feature"
    )
    parser.add_argument("--pods", metavar="SELECTOR", help="with kubernetes: pods with these labels, as app=sonde")
    parser.add_argument("--namespace", default="", metavar="NAME", help="with --pods: of this namespace (default all)")
    parser.add_argument("--format", choices=("file_sd", "text"), default="file_sd", help="JSON, or host:port lines")
    parser.add_argument("--write", metavar="FILE", help="write it there, at once and only when it has changed")
    parser.add_argument("--watch", type=duration, metavar="DURATION", help="again and again, until interrupted")
    parser.add_argument("--serve", metavar="ADDRESS", help="answer HTTP at /targets, looking anew every --watch (60s)")
    parser.add_argument("--insecure", action="store_true", help="allow an address that other machines can reach")


def run(args: argparse.Namespace) -> int:
    discovery = Discovery(args)
    if args.serve:
        from sonde.cli.target_server import serve

        return serve(discovery, args.serve, args.watch or _PERIOD, path=args.write, insecure=args.insecure)
    if args.watch and not args.write:
        raise UsageError("--watch writes a file or serves", hint="add --write FILE or --serve 127.0.0.1:1780")
    if args.watch:
        return _watch(discovery, args.write, args.watch)
    text = discovery.text()
    if args.write:
        write(args.write, text)
    else:
        print(text, end="")
    return 0


class Looks(Protocol):
    def text(self) -> str:
        """The list as it is printed, written or served. Raises SondeError when it cannot be had now."""


def _watch(discovery: Looks, path: str, period: Duration) -> int:
    health = Health()
    due = time.monotonic()
    while True:
        try:
            write(path, discovery.text())
            health.good()
        except SondeError as error:
            health.bad(error)
        due = max(due + period, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


class Health:
    """Says on standard error when looking begins to fail and when it works again; not each time."""

    def __init__(self) -> None:
        self._said = ""

    def good(self) -> None:
        if self._said:
            print("sonde: targets: works again", file=sys.stderr, flush=True)
            self._said = ""

    def bad(self, error: SondeError) -> None:
        if str(error) != self._said:
            self._said = str(error)
            print(f"sonde: targets: {error}; the targets stay as they are", file=sys.stderr, flush=True)


class Discovery:
    """What the command line asks for, checked before anything is asked of anybody."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        if (args.source == "hosts") != bool(args.list):
            raise UsageError("hosts takes a list of hosts, slurm and kubernetes know theirs")
        if (args.pods or args.namespace) and args.source != "kubernetes":
            raise UsageError("--pods and --namespace are for kubernetes")
        if args.source == "hosts" and args.state != "all":
            raise UsageError("nobody knows the states of a list of hosts: leave --state out")
        self._hosts = _host_lists(args.list)
        self._states = _States(args.state)
        self._labels = [name for name in args.labels.split(",") if name]
        self._constant = dict(_pair(text, "--label") for text in args.label)
        self._extracted = [(name, _expression(text)) for name, text in (_pair(x, "--extract") for x in args.extract)]

    def _nodes(self) -> list[Node]:
        if self._args.source == "slurm":
            return nodes.slurm_nodes()
        if self._args.source == "hosts":
            return nodes.listed_nodes(self._hosts)
        pods = self._args.pods
        return nodes.kubernetes_pods(pods, self._args.namespace) if pods else nodes.kubernetes_nodes()

    def groups(self) -> list[dict[str, object]]:
        """The nodes as Prometheus' file_sd and http_sd have them: one group each, its labels being its own."""
        return [
            {"targets": [self._target(node)], "labels": self._labels_of(node)}
            for node in self._nodes()
            if self._states.match(node)
        ]

    def text(self) -> str:
        groups = self.groups()
        if self._args.format == "text":
            return "".join(f"{group['targets'][0]}\n" for group in groups)  # type: ignore[index]
        return "[" + ",\n ".join(json.dumps(group, ensure_ascii=False) for group in groups) + "]\n"

    def _target(self, node: Node) -> str:
        return str(Address(node.name if self._args.address == "name" else node.address, self._args.port))

    def _labels_of(self, node: Node) -> dict[str, str]:
        labels = {name: node.facts[name] for name in self._labels if node.facts.get(name)}
        labels |= {name: value for name, found in self._extracted if (value := _found(found, (node.name, *node.words)))}
        return labels | self._constant | {f"__meta_sonde_{name}": value for name, value in node.facts.items() if value}


class _States:
    """`all`, `up`, or words of which a node has one; a word after ! is one it must not have."""

    def __init__(self, text: str) -> None:
        words = [word.strip().lower() for word in text.split(",") if word.strip()]
        if not words:
            raise UsageError("--state: which?", hint="all, up, or words as in `idle,mixed` or `!down`")
        self._wanted = {word for word in words if not word.startswith("!") and word != "all"}
        self._unwanted = {word[1:] for word in words if word.startswith("!")}

    def match(self, node: Node) -> bool:
        states = {*node.states, "up" if node.is_up else "away"}
        return (not self._wanted or bool(self._wanted & states)) and not self._unwanted & states


def _found(expression: re.Pattern[str], texts: Iterable[str]) -> str:
    for text in texts:
        match = expression.search(text)
        if match:
            return str(match[1] if expression.groups else match[0]) or ""
    return ""


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _LABEL.fullmatch(name):
        raise UsageError(f"{option} {text!r} is not NAME=VALUE", hint=f"as in {option} cluster=blue")
    return name, value


def _expression(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--extract: {text!r} is not an expression: {error}") from None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _host_lists(texts: Sequence[str]) -> list[str]:
    """The lists themselves: those of @FILE and of standard input are one to a line, # begins a remark.

    All are checked here: one that makes no sense now will not make any at the next look.
    """
    found: list[str] = []
    for text in texts:
        if text == "-":
            found += _checked(sys.stdin.read().splitlines(), "standard input")
        elif text.startswith("@"):
            found += _checked(_lines(text[1:]), text[1:])
        else:
            found += _checked([text], "")
    if texts and not found:
        # Prometheus takes an empty list for the truth and forgets every node.
        raise UsageError("the list of hosts is empty", hint="as in sonde targets hosts 'n[1-64],gpu[01-08]'")
    return found


def _checked(lines: Iterable[str], source: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        try:
            if hostlist.expand(text):
                yield text
        except ParseError as error:
            raise UsageError(f"{source}, line {number}: {error}" if source else str(error)) from None


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a list of hosts") from None


def write(path: str, text: str) -> bool:
    """Replace a file in one step, unless it says the same already: Prometheus must not see half of a list."""
    try:
        if _content(path) == text:
            return False
        folder, name = os.path.split(os.path.abspath(path))
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=f".{name}.", delete=False, encoding="utf-8") as file:
            try:
                file.write(text)
                os.fchmod(file.fileno(), 0o644)  # Prometheus is another user
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise SondeError(f"{path}: {error.strerror or error}") from None
    return True


def _content(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return None

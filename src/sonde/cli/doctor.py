"""What works on this host, what does not, why, and what would enable it.

  sonde doctor                every collector, tried here and now, without a daemon
  sonde doctor trace [PID]    what keeps a process, or any of yours, from being traced

Exit code 0 when the daemon can do its work here, 1 when something it needs is broken. For trace: 0 when it can be
traced, 1 when not, 3 when no daemon answers; then /proc alone is looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sonde.cli import doctor_counters, doctor_trace
from sonde.cli.connection import add_connection, address_of, call
from sonde.cli.terminal import paint
from sonde.config import Config, load
from sonde.daemon.paths import ROOT_HINT, default_paths, flaw_of_root
from sonde.errors import ConfigError, Denied, SondeError, Unavailable
from sonde.hostfs import HostFS
from sonde.model import Reading
from sonde.pipeline.assembly import construct, plan_collectors
from sonde.registry import COLLECTORS, OFF_BY_DEFAULT

_COLOUR = {"ok": "green", "partly": "yellow", "absent": "grey", "denied": "yellow", "broken": "red"}


class Finding(NamedTuple):
    subject: str
    state: str  # ok, partly, absent, denied, broken
    detail: str
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection(parser)
    parser.add_argument("--root", default="/", metavar="DIR", help="where the host's /proc and /sys are found")
    parser.add_argument("--json", action="store_true", help="print a list of findings")
    verbs = parser.add_subparsers(dest="verb", metavar="trace")
    trace = verbs.add_parser("trace", help="what keeps a process from being traced", description=doctor_trace.__doc__)
    doctor_trace.add_arguments(trace)
    for action in trace._actions:
        action.default = (
            argparse.SUPPRESS if action.option_strings else action.default
        )  # given before the verb, it holds


def run(args: argparse.Namespace) -> int:
    if args.verb == "trace":
        return doctor_trace.run(args)
    if not os.path.isdir(os.path.join(args.root, "proc")):
        raise Unavailable(flaw_of_root(args.root), hint=ROOT_HINT)
    findings = [*check_host(args), *check_collectors(HostFS(args.root))]
    if args.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    else:
        print(render(findings))
    return 1 if any(finding.state == "broken" for finding in findings) else 0


def render(findings: list[Finding]) -> str:
    width = max(len(finding.subject) for finding in findings)
    lines = []
    for finding in findings:
        state = paint(f"{finding.state:<7}", _COLOUR[finding.state])
        lines.append(f"{finding.subject:<{width}}  {state} {finding.detail}".rstrip())
        if finding.remedy:
            lines.append(f"{'':<{width}}          → {finding.remedy}")
    counts = [
        [str(sum(finding.state == state for finding in findings)), state]
        for state in _COLOUR
        if any(finding.state == state for finding in findings)
    ]
    return "\n".join([*lines, "", ", ".join(" ".join(pair) for pair in counts)])


def check_host(args: argparse.Namespace) -> Iterator[Finding]:
    """The checks that are not collectors. A later part of sonde adds its own to the table."""
    for check in CHECKS:
        yield check(args)


def _python(args: argparse.Namespace) -> Finding:
    good = sys.version_info >= (3, 11)
    return Finding(
        "python", "ok" if good else "broken", platform.python_version(), "" if good else "needs 3.11 or newer"
    )


def _kernel(args: argparse.Namespace) -> Finding:
    return Finding("kernel", "ok", f"{platform.system()} {platform.release()} {platform.machine()}")


_CAP_DAC_READ_SEARCH, _CAP_SYS_PTRACE = 1 << 2, 1 << 19  # include/uapi/linux/capability.h


def _rights(args: argparse.Namespace) -> Finding:
    if os.geteuid() == 0:
        return Finding("rights", "ok", "root")
    wanted = _CAP_DAC_READ_SEARCH | _CAP_SYS_PTRACE
    if _capabilities() & wanted == wanted:
        return Finding("rights", "ok", f"uid {os.geteuid()} with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH")
    return Finding(
        "rights",
        "partly",
        f"uid {os.geteuid()}: other users' processes, their I/O and RAPL energy are denied",
        "run the daemon as root, or give it CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (packaging/sonde.service)",
    )


def _capabilities() -> int:
    """The effective set of this process: the mask behind `CapEff:` in /proc/self/status."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith("CapEff:")), 0)


def _root(args: argparse.Namespace) -> Finding:
    flaw = flaw_of_root(args.root)
    return Finding("root", "broken" if flaw else "ok", flaw or args.root, ROOT_HINT if flaw else "")


def _cgroup(args: argparse.Namespace) -> Finding:
    host = HostFS(args.root)
    if host.exists("sys/fs/cgroup/cgroup.controllers"):
        return Finding("cgroup", "ok", "version 2")
    if host.exists("sys/fs/cgroup/cpuacct") or host.exists("sys/fs/cgroup/cpu,cpuacct"):
        return Finding("cgroup", "ok", "version 1, or both")
    return Finding("cgroup", "absent", "not mounted below /sys/fs/cgroup: job totals come from the process tree")


def _counters(args: argparse.Namespace) -> Finding:
    return Finding("counters", *doctor_counters.outlook(HostFS(args.root)))


def _daemon(args: argparse.Namespace) -> Finding:
    try:
        version = call(args, "getVersion", timeout=1.0).get("version", "of another kind")
    except SondeError as error:
        return Finding("daemon", "absent", f"none answers at {address_of(args)}: {error}", "start one: sonde daemon")
    return Finding("daemon", "ok", f"{version} answers at {address_of(args)}")


def _state(args: argparse.Namespace) -> Finding:
    paths = default_paths()
    for folder in (paths.state, paths.runtime):
        if flaw := _unwritable(folder):
            return Finding("state", "broken", flaw, "start the daemon with --state DIR")
    return Finding("state", "ok", paths.state)


def _archive(args: argparse.Namespace) -> Finding:
    paths = default_paths()
    try:
        config = load(paths.config).archive if os.path.exists(paths.config) else Config().archive
    except ConfigError as error:
        return Finding("archive", "broken", str(error), error.hint)
    if not config.enabled:
        return Finding("archive", "ok", "switched off: archive.enabled = false")
    path = config.path or paths.archive
    folder = os.path.dirname(os.path.abspath(path))
    if flaw := _unwritable(folder):
        return Finding("archive", "broken", flaw, "set archive.path, or start the daemon with --state DIR")
    space = os.statvfs(_existing(folder))
    return Finding("archive", "ok", f"{path}, {space.f_bavail * space.f_frsize / 1e9:.1f} GB free")


def _unwritable(folder: str) -> str:
    """Why the daemon could not keep a file in a directory, which it makes when it is not there; empty when it can."""
    existing = _existing(folder)
    if os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK):
        return ""
    flaw = "writable" if os.path.isdir(existing) else "a directory"
    return f"{existing} is not {flaw}" + (f": {folder} cannot be made" if folder != existing else "")


def _existing(folder: str) -> str:
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return folder


CHECKS: list[Callable[[argparse.Namespace], Finding]] = [
    _python,
    _kernel,
    _rights,
    _root,
    _cgroup,
    _counters,
    _daemon,
    _state,
    _archive,
]


def check_collectors(host: HostFS) -> Iterator[Finding]:
    for plan in plan_collectors(Config(collectors={name: {"enabled": True} for name in COLLECTORS})):
        subject = f"collector {plan.name}"
        try:
            collector = construct(plan.cls, host, plan.own)
        except Denied as error:
            yield Finding(subject, "denied", str(error), error.hint)
            continue
        except Unavailable as error:
            yield Finding(subject, "absent", str(error), error.hint)
            continue
        try:
            yield _marked(plan.name, _judge(subject, collector.collect()))
        except (SondeError, OSError) as error:
            yield Finding(subject, "broken", str(error))
        finally:
            collector.close()


def _marked(name: str, finding: Finding) -> Finding:
    if name not in OFF_BY_DEFAULT:
        return finding
    switch = f"off unless collectors.{name}.enabled = true"
    return finding._replace(detail=f"{finding.detail}; {switch}")


def _judge(subject: str, reading: Reading) -> Finding:
    if not reading.gaps:
        return Finding(subject, "ok", f"{len(reading.values)} series")
    first = reading.gaps[0]
    more = f" (and {len(reading.gaps) - 1} more)" if len(reading.gaps) > 1 else ""
    detail = f"{len(reading.values)} series; {first.spec.name} {first.quality.value}: {first.reason}{more}"
    return Finding(subject, "partly", detail)

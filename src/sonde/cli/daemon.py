"""Watch this node: collect, serve /metrics, answer `sonde status`, keep the archive.

  sonde daemon                            as the configuration says (default: every 10 s, loopback only)
  sonde daemon --period 1s --live         with a line per second in this terminal until Ctrl-C
  sonde daemon --state ./var              everything it writes in one directory

SIGTERM flushes and ends within two seconds; SIGHUP reopens the log files, reads the configuration and the certificates
again.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from sonde.cli.arguments import duration
from sonde.cli.daemon_process import Process, become
from sonde.config import SHORTEST_PERIOD
from sonde.daemon.paths import Paths, default_paths, paths_in
from sonde.errors import SondeError, TimedOut, Unavailable, UsageError
from sonde.units import Duration

if TYPE_CHECKING:
    import subprocess

_START_SECONDS = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="configuration (default: /etc/sonde/sonde.toml, or your own)")
    parser.add_argument("--state", metavar="DIR", help="keep the archive and the socket in this directory")
    parser.add_argument("--period", type=duration, metavar="1s", help="default period of all collectors")
    parser.add_argument("--collectors", metavar="A,B", help="only these collectors")
    parser.add_argument(
        "--rpc-address", metavar="HOST:PORT", help="default 127.0.0.1:1778; empty: only the Unix socket"
    )
    parser.add_argument(
        "--certs-dir",
        metavar="DIR",
        help="mutual TLS on the RPC address, which may then be any: server.crt, server.key, ca.crt, ca.crl",
    )
    parser.add_argument("--http-address", metavar="HOST:PORT", help="default 127.0.0.1:1779; empty: no /metrics")
    parser.add_argument("--log-file", metavar="FILE", help="default: standard error")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), help="default: info")
    parser.add_argument("--insecure", action="store_true", help="allow addresses that other machines can reach")
    parser.add_argument("--no-archive", action="store_true", help="keep nothing on disk")
    parser.add_argument(
        "--tracing",
        action=argparse.BooleanOptionalAction,
        help="let training processes ask for traces (default: as the configuration says, else yes)",
    )
    parser.add_argument("--live", action="store_true", help="show a line per second until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    if args.period is not None and args.period < SHORTEST_PERIOD:
        raise UsageError(f"--period: the shortest period is {SHORTEST_PERIOD}")
    if args.live:
        return run_live(args)
    process = Process(
        config=os.path.abspath(args.config) if args.config else None,
        state=os.path.abspath(args.state) if args.state else None,
        changes=changes(args),
        archive=not args.no_archive,
        tracing=args.tracing,
    )
    return become(process)


def changes(args: argparse.Namespace) -> dict[str, object]:
    """What the command line says about [daemon], over what the file says."""
    named = {
        "period": str(args.period) if args.period is not None else None,
        "collectors": args.collectors.split(",") if args.collectors else None,
        "rpc_address": args.rpc_address,
        "certs_dir": os.path.abspath(args.certs_dir) if args.certs_dir else None,
        "http_address": args.http_address,
        "log_file": os.path.abspath(args.log_file) if args.log_file else None,
        "log_level": args.log_level,
        "insecure": args.insecure or None,
    }
    return {key: value for key, value in named.items() if value is not None}


def run_live(args: argparse.Namespace) -> int:
    """Run the daemon as a child and watch it as any other client would."""
    import signal
    import subprocess  # here, not above: the daemon itself never forks and need not carry it

    from sonde.cli import watch

    paths = paths_in(args.state) if args.state else default_paths()
    words = [word for word in sys.argv[1:] if word != "--live"]
    if not args.log_file:
        words += ["--log-file", os.path.join(paths.state, "sonde.log")]
    os.makedirs(paths.state, exist_ok=True)
    # In a process group of its own: Ctrl-C is for us, and we ask the daemon to end. Asked twice, it would not flush.
    child = subprocess.Popen([sys.executable, "-m", "sonde", *words], process_group=0)  # noqa: S603 - ourselves
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        view = argparse.Namespace(host=f"unix:{paths.rpc_socket}", every=Duration(1), count=0, json=False)
        introduce(child, view, paths)
        return watch.run(view)
    except KeyboardInterrupt:
        print()
        return 0
    except SondeError:
        if child.poll() is None:
            raise
        if child.returncode < 0:
            raise SondeError(f"the daemon was ended by signal {-child.returncode}") from None
        return child.returncode  # it has said why
    finally:
        if child.poll() is None:
            child.terminate()
        child.wait(5)


def introduce(child: subprocess.Popen[bytes], view: argparse.Namespace, paths: Paths) -> None:
    """Wait for the daemon to answer, then say where it is and what it collects."""
    import time

    from sonde.cli.connection import call

    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            reply = call(view, "daemon.status", timeout=2.0)
            if reply["pid"] == child.pid and all(item["ticks"] for item in reply["collectors"]):
                break
        except SondeError:
            pass
        if child.poll() is not None:
            raise Unavailable("the daemon ended at once")
        if time.monotonic() > until:
            raise TimedOut(
                f"the daemon does not answer after {_START_SECONDS:.0f} s", hint=f"see {paths.state}/sonde.log"
            )
        time.sleep(0.05)
    names = [item["name"] for item in reply["collectors"]]
    print(f"sonde {reply['build']} watches {reply['host']}: {reply['series']} series")
    print(f"  collects  {', '.join(names)}")
    if reply["absent"]:
        print(f"  not here  {', '.join(absent['name'] for absent in reply['absent'])} (sonde doctor says why)")
    print(f"  metrics   {reply['addresses'].get('metrics', 'off')}")
    print(f"  archive   {paths.archive}    log {paths.state}/sonde.log")
    print("Ctrl-C ends it.", flush=True)

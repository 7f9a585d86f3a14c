"""What the daemon and `sonde --help` may not import: memory is lost one harmless line at a time."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Each with what it costs, measured in resident memory (docs/adr/0005).
DENIED = {
    "dataclasses": "1.5 MB with inspect, ast and tokenize",
    "argparse": "0.4 MB",
    "asyncio": "11 MB",
    "ssl": "5 MB; only with TLS",
    "ctypes": "0.7 MB; only in native/",
    "subprocess": "1 MB; only where a batch system must be asked",
    "email": "2 MB",
    "http.client": "8 MB with email",
    "urllib.request": "9 MB",
    "logging.handlers": "1 MB",
    "multiprocessing": "2 MB",
    "concurrent.futures": "1 MB",
    "tomllib": "0.5 MB; only while a file is read",
    "datetime": "0.3 MB; see store/engine.py",
    "numpy": "16 MB",
    "psutil": "4 MB",
    "prometheus_client": "14 MB",
    "google.protobuf": "7 MB",
    "cramjam": "2 MB; only where something is compressed",
}

DAEMON = """
import sys
from sonde.daemon.service import Daemon
from sonde.registry import COLLECTORS, SINKS, load
for name in COLLECTORS: load(COLLECTORS, name)
for name in SINKS: load(SINKS, name)
import sonde.cli.daemon_process
print(*sys.modules)
"""
HELP = """
import sys
from sonde.cli.main import main
main(["--help"])
print("MODULES", *sys.modules)
"""


def modules_after(program: str) -> set[str]:
    out = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env=_environ()
    )
    return set(out.stdout.rpartition("MODULES")[2].split())


def _environ() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(path for path in sys.path if path), "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize("module", DENIED)
def test_the_daemon_does_not_carry(module: str) -> None:
    assert module not in modules_after(DAEMON), f"{module} costs {DENIED[module]}"


def test_help_imports_no_collector_no_sink_and_nothing_foreign() -> None:
    modules = modules_after(HELP)

    ours = {name for name in modules if name.startswith("sonde")}
    assert ours == {"sonde", "sonde.cli", "sonde.cli.main"}
    assert modules - ours <= set(sys.stdlib_module_names) | {"__main__"} | {name for name in modules if "." in name}
    assert "argparse" not in modules

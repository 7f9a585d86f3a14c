"""`perfmon`: records a job as ska-sdp-perfmon's command line says, and writes its files at the end.

srun -n $SLURM_JOB_NUM_NODES --ntasks-per-node 1 perfmon -d metrics -i 5 -r -e csv hdf5 &

It is silent: what there is to say goes to ska_sdp_monitoring_metrics.log in the save directory (with -v one per node),
where the recording itself is kept too, for `sonde report` and `sonde export`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sonde.cli import record, record_after
from sonde.cli.arguments import Parser
from sonde.cli.main import guarded
from sonde.errors import SondeError, UsageError
from sonde.jobs.recording import About
from sonde.jobs.stopfile import IN_PROGRESS
from sonde.units import Duration

if TYPE_CHECKING:
    from sonde.jobs.follow import Followed

FORMATS = ("csv", "hdf5", "parquet", "pickle", "feather", "orc")
LOG = "ska_sdp_monitoring_metrics"
_LABELS = ("system", "partition", "env", "name")
_RETRIES = 25.0  # seconds perfmon looks for a job: five times, five seconds apart
_LATER = 60.0  # a job may take longer to begin than that


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    return guarded("perfmon", lambda: run(parser().parse_args(words)))


def parser() -> argparse.ArgumentParser:
    found = Parser(prog="perfmon", description="Record the metrics of the job this is started beside (by sonde).")
    found.add_argument(
        "-d", "--save_dir", nargs="?", default=None, help="base directory of the metrics (default: $PWD)"
    )
    found.add_argument("-p", "--prefix", nargs="?", default=None, help="directory to make in it")
    found.add_argument("-l", "--launcher", nargs="?", default=None, help="of the job; it is found without")
    found.add_argument("-i", "--sampling_freq", type=_seconds, default=30.0, help="seconds between two samples (30)")
    found.add_argument(
        "-c",
        "--check_point",
        type=_seconds,
        nargs="?",
        default=900.0,
        const=900.0,
        help="seconds (900); each second is kept",
    )
    found.add_argument("-r", "--gen_report", action="store_true", help="make plots and a job report")
    found.add_argument("-e", "--export", nargs="*", choices=FORMATS, default=None, help="export to these (csv)")
    found.add_argument("--system", nargs="?", default=None, help="name of the system")
    found.add_argument("--partition", nargs="?", default=None, help="name of the partition")
    found.add_argument("--env", nargs="?", default=None, help="name of the environment")
    found.add_argument("--name", nargs="?", default=None, help="name of the test")
    found.add_argument("-v", "--verbose", action="store_true", help="a log and a configuration file per node")
    return found


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.01 <= seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, from 0.01")
    return seconds


def run(args: argparse.Namespace) -> int:
    from sonde.hostfs import HostFS
    from sonde.jobs.follow import find, node_name
    from sonde.jobs.signals import Signals

    if args.check_point < args.sampling_freq:
        raise UsageError(
            f"--check_point {args.check_point:g} is shorter than --sampling_freq {args.sampling_freq:g}",
            hint="a checkpoint holds at least one sample",
        )
    base = os.path.join(os.path.abspath(args.save_dir or os.getcwd()), args.prefix or "")
    host = node_name(os.environ)
    followed = find(HostFS(), os.environ)
    os.makedirs(base, exist_ok=True)
    _be_silent(os.path.join(base, f"{LOG}_{host}.log" if args.verbose else f"{LOG}.log"))
    with Signals() as signals:
        options = _options(args, followed, base)
        _begin_ipc(os.path.dirname(base.rstrip("/")) if args.prefix else base, followed)
        if args.verbose:
            _write_configuration(base, host, args)
        _say(host, f"records job {followed.job.id.text} every {args.sampling_freq:g} s")
        recorder = record.start(options, followed, About(host="", begun_ns=time.time_ns(), period_ns=0))
        about = record.until_ended(options, recorder, followed, signals)
        if about is None:
            return 1
        _say(host, f"has ended: {about.ended_by}")
        code = record_after.finish(options, options.output, about)
        if record_after.is_first(about, record_after.nodes_of(options, about)):
            code = max(code, _write_files(args, options.output, base))
    return code


def _options(args: argparse.Namespace, followed: Followed, base: str) -> argparse.Namespace:
    """The same for `sonde record`."""
    from sonde.jobs.follow import node_name
    from sonde.jobs.recorder import unused

    labels = [(key, value) for key in _LABELS if (value := getattr(args, key))]
    return argparse.Namespace(
        output=unused(os.path.join(base, f"sonde-{followed.job.id.text}"), node_name(os.environ)),
        period=Duration(args.sampling_freq),
        collectors="",
        label=labels,
        wait=max(_RETRIES, _LATER),
        linger=Duration(5),
        stop_file=None,
        from_daemon=False,
        hosts=None,
        no_gather=False,
        report=False,
        export=[],
        verbose=False,
        json=False,
    )


def _be_silent(path: str) -> None:
    """Let everything that is said go to the log, beside that of other nodes: whole lines, appended."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    sys.stdout.flush()
    sys.stderr.flush()
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)


def _say(host: str, text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {host} {text}", flush=True)


def _begin_ipc(folder: str, followed: Followed) -> None:
    """Make the file by which a script ends the monitoring, if no node has made it."""
    try:
        with open(os.path.join(folder, f".ipc-{followed.job.key.text}"), "x", encoding="ascii") as file:
            file.write(f"{IN_PROGRESS}\n")
    except FileExistsError:
        pass  # another node's, or one that is written to already
    except OSError as error:
        print(f"{folder}: no file to end by: {error.strerror}", flush=True)


def _write_configuration(base: str, host: str, args: argparse.Namespace) -> None:
    folder = os.path.join(base, "configs")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{host}_run_config.yml"), "w", encoding="utf-8") as file:
        # What is JSON is YAML.
        file.writelines(f"{key}: {json.dumps(value)}\n" for key, value in sorted(vars(args).items()))


def _write_files(args: argparse.Namespace, path: str, base: str) -> int:
    """perfmon's own files, out of the recording."""
    from sonde.cli.main import main as sonde

    formats = ["csv"] if args.export == [] else args.export or []
    words = ["export", path, "--to", "perfmon", "--output", base, "--append"]
    code = sonde([*words, *(["--frames", ",".join(formats)] if formats else [])])
    if args.gen_report:
        job = os.path.basename(path).removeprefix("sonde-")
        report = os.path.join(base, f"job-report-{job}.pdf")
        code = max(code, sonde(["report", path, "--pdf", report, "--plots", os.path.join(base, "plots")]))
    if code:
        raise SondeError(f"not all files were written; the recording is in {path}")
    return code

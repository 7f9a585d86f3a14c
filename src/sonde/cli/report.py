"""What a recorded job did, and what to change: a verdict, findings with their evidence, bars, plots.

sonde report DIR                                   on the terminal: one screen; --all for everything
sonde report DIR --html report.html                one file with plots to zoom into; works offline
sonde report DIR --pdf report.pdf --plots plots    a document, and a picture per plot (--svg: as SVG)
sonde report DIR --rules site.toml                 with a site's own thresholds
sonde report DIR --json                            figures, findings and what was not seen, as an object

DIR is what `sonde record` has written: of all nodes, or of one. A figure that was not measured is never shown as 0. The
text, the page and --json need nothing beside sonde; --pdf and --plots need matplotlib: pip install 'sonde[report]'.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from typing import Any

from sonde.cli.progress import Progress
from sonde.cli.terminal import paint
from sonde.errors import Unavailable, UsageError
from sonde.jobs.recording import open_recording
from sonde.jobs.report import Report, make_report
from sonde.units import human_bytes

_SUMMARY = 0.6  # share of the work that is reading, about


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the recording")
    parser.add_argument("--text", action="store_true", help="print the text beside what is written to files")
    parser.add_argument("--all", action="store_true", help="in the text: every finding, node and device")
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page")
    parser.add_argument("--pdf", metavar="FILE", help="write a document in A4")
    parser.add_argument(
        "--plots", metavar="DIR", help="write a picture per plot: NAME_per_node.png, NAME_all_nodes.png"
    )
    parser.add_argument("--svg", action="store_true", help="pictures as SVG instead of PNG")
    parser.add_argument("--rules", metavar="FILE", help="a site's thresholds and rules (default: [report] rules)")
    parser.add_argument("--config", metavar="FILE", help="the configuration [report] is looked up in")
    parser.add_argument("--json", action="store_true", help="print an object")


def run(args: argparse.Namespace) -> int:
    if args.svg and not args.plots:
        raise UsageError("--svg is for pictures", hint="say where: --plots DIR --svg")
    recording = open_recording(args.directory)
    if args.pdf or args.plots:
        _need_matplotlib()
    with Progress("report") as progress:
        report = make_report(
            recording, rules=_rules(args), progress=lambda share, host: progress.show(share * _SUMMARY, host)
        )
        written = _write(args, report, progress)
    _tell(args, report, written)
    return 0


def _rules(args: argparse.Namespace) -> str | None:
    """The file on the command line, else the one of the configuration."""
    if args.rules:
        return str(args.rules)
    from sonde import config
    from sonde.daemon.paths import default_paths

    path = args.config or default_paths().config
    if not args.config and not os.access(path, os.R_OK):
        return None
    return config.load(path).report.rules or None


def _need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise Unavailable(
            "--pdf and --plots draw with matplotlib, which is not installed",
            hint="pip install 'sonde[report]', or use --html, which needs nothing",
        ) from None


def _write(args: argparse.Namespace, report: Report, progress: Progress) -> list[str]:
    """The files, in the order they were written."""
    written = []
    progress.show(_SUMMARY, "drawing")
    try:
        if args.html:
            from sonde.jobs.report.html import write_page

            write_page(report, args.html)
            written.append(args.html)
        if args.pdf:
            from sonde.jobs.report.pdf import write_pdf

            write_pdf(report, args.pdf, progress=lambda share: progress.show(0.7 + 0.2 * share, "PDF"))
            written.append(args.pdf)
        if args.plots:
            from sonde.jobs.report.plots import write_plots

            form = "svg" if args.svg else "png"
            written += write_plots(
                report.summary, args.plots, form, progress=lambda share: progress.show(0.9 + 0.1 * share, "plots")
            )
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    return written


def _tell(args: argparse.Namespace, report: Report, written: list[str]) -> None:
    if args.json:
        from sonde.jobs.report.plain import as_object

        told: dict[str, Any] = {**as_object(report), "written": written}
        print(json.dumps(told, indent=2))
        return
    if args.text or not written:
        from sonde.jobs.report.text import Style, render

        width = min(120, max(60, shutil.get_terminal_size((80, 24)).columns))
        encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
        print(render(report, Style(width, encoding.startswith("utf"), args.all, paint)))
    else:
        print(report.verdict)
    for path in written[:2]:
        print(f"wrote {path} ({human_bytes(os.path.getsize(path))})")
    if len(written) > 2:
        print(f"wrote {len(written) - 2} more" + (f", pictures in {args.plots}" if args.plots else ""))

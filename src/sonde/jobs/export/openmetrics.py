"""OpenMetrics text with times, for `promtool tsdb create-blocks-from openmetrics`: a job in Prometheus, afterwards.

    # TYPE node_load1 gauge
    node_load1{instance="n1",job="sonde"} 0.25 1790000000.000

A family's series must stand together, while nodes are read one after the other: each family is collected in a file of
its own, so that memory is one node's.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import IO

from sonde.jobs.export.table import Table
from sonde.jobs.stored import Stored
from sonde.model import Kind, MetricSpec, Unit
from sonde.sinks.exposition import Format, escape_label, family, number
from sonde.store.form import Series


def write_openmetrics(table: Table, file: IO[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="sonde-") as folder:
        declared: dict[str, str] = {}  # the file of each family, by its declaration
        for host, found in table.chosen():
            for one in found:
                path = declared.setdefault(_declaration(one.series), os.path.join(folder, str(len(declared))))
                with open(path, "a", encoding="utf-8") as part:
                    part.writelines(_lines(one, host))
        for declaration, path in sorted(declared.items()):
            file.write(declaration)
            with open(path, encoding="utf-8") as part:
                shutil.copyfileobj(part, file)
    file.write("# EOF\n")


def _declaration(series: Series) -> str:
    kinds = {kind.value: kind for kind in Kind}
    # Parts of a histogram come as counters of their own; what a newer sonde has may be of a kind not known here.
    spec = MetricSpec(series.metric, kinds.get(series.kind, Kind.UNTYPED), Unit.NONE, "")
    name, type_ = family(spec, Format.OPENMETRICS)
    return f"# TYPE {name} {type_}\n"


def _lines(one: Stored, host: str) -> list[str]:
    labels = dict(one.series.labels)
    if "le" in labels and labels["le"] != "+Inf":
        labels["le"] = number(float(labels["le"]))  # as a scraped histogram has it: 1.0, not 1
    labels |= {"instance": host, "job": "sonde"}
    inside = ",".join(f'{name}="{escape_label(value)}"' for name, value in sorted(labels.items()))
    begin = f"{one.series.metric}{{{inside}}} "
    # Prometheus keeps milliseconds.
    return [
        f"{begin}{number(value)} {time_ms // 1000}.{time_ms % 1000:03d}\n"
        for value, time_ms in zip(one.values.tolist(), (one.times // 1_000_000).tolist(), strict=True)
    ]

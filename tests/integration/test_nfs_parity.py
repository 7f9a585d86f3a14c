"""The real node_exporter's and our statistics of NFS, of the same files: the same families, labels and values.

One step of a counter cannot hide another here: in the captured tree every number is another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from sonde.hostfs import HostFS
from sonde.registry import COLLECTORS, load

FLAGS = ("--collector.disable-defaults", "--collector.nfs", "--collector.mountstats")


@pytest.mark.parametrize("name", ["nfs", "mountstats"])
def test_every_value_of_nfs_is_node_exporters(
    node_exporter: Callable[..., Any], captured: Callable[[str], HostFS], name: str
) -> None:
    host = captured("storage")
    page = node_exporter(*FLAGS, f"--path.procfs={host.path('proc')}").scrape()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    rows = re.findall(rf"^(node_{name}_\w+)(?:\{{(.*)\}})? (\S+)$", page, re.MULTILINE)
    theirs = {
        (metric, kinds[metric], frozenset(re.findall(r'(\w+)="(.*?)"', labels))): float(value)
        for metric, labels, value in rows
    }
    cls: Any = load(COLLECTORS, name)
    collector = cls(host, cls.Config())
    reading = collector.collect()
    collector.close()
    ours = {
        (spec.name, spec.kind.value, frozenset(zip(spec.labels, labels, strict=True))): float(value)
        for (spec, labels), value in zip(reading.layout, reading.values, strict=True)
    }

    assert ours == theirs
    assert len(theirs) > 100

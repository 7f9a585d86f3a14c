"""Real network devices in a network namespace of their own, asked by us and by the real node_exporter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest
from tests.integration.conftest import PATIENCE, require
from tests.lacking import lacking

SET_UP = """
set -e
mount -t sysfs sysfs /sys
ip link set lo up
ip link add name left type veth peer name right
ip link set left up
ip link set right up
ip tuntap add name tap0 mode tap
ip link add name br0 type bridge
exec "$@"
"""
ASK = """
import json, re, subprocess, sys, time, urllib.request
from sonde.collectors.ethtool import EthtoolCollector, EthtoolConfig
from sonde.hostfs import HostFS

flags = ["--collector.disable-defaults", "--collector.ethtool", "--web.disable-exporter-metrics"]
exporter = subprocess.Popen(
    [sys.argv[1], "--web.listen-address=127.0.0.1:9100", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
)
page, until = "", time.monotonic() + float(sys.argv[2])
try:
    while not page and time.monotonic() < until:
        try:
            page = urllib.request.urlopen("http://127.0.0.1:9100/metrics", timeout=5).read().decode()
        except OSError:
            time.sleep(0.05)
finally:
    exporter.terminate()
    exporter.wait()
collector = EthtoolCollector(HostFS(), EthtoolConfig(include=".*", exclude="", device_exclude=""))
reading = collector.collect()
ours = [
    [spec.name, spec.kind.value, sorted(zip(spec.labels, labels)), float(value)]
    for (spec, labels), value in zip(reading.layout, reading.values)
]
kinds = dict(re.findall(r"^# TYPE (\\S+) (\\S+)$", page, re.MULTILINE))
theirs = [
    [name, kinds[name], sorted(re.findall(r'(\\w+)="(.*?)"', labels)), float(value)]
    for name, labels, value in re.findall(r"^(\\w+)\\{(.*)\\} (\\S+)$", page, re.MULTILINE)
]
collector.close()
print(json.dumps({"ours": ours, "theirs": theirs, "gaps": [gap.reason for gap in reading.gaps]}))
"""


@pytest.fixture
def answers() -> dict[str, Any]:
    program = require("prometheus-node-exporter")
    for tool in ("ip", "unshare"):
        require(tool)
    if os.geteuid() != 0:
        lacking("only root can make network devices")
    shell = shutil.which("sh") or "/bin/sh"
    command = ["unshare", "--net", "--mount", shell, "-c", SET_UP, "sh", sys.executable, "-c", ASK, program]
    done = subprocess.run([*command, str(PATIENCE)], capture_output=True, text=True, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stderr
    reply: dict[str, Any] = json.loads(done.stdout)
    return reply


def test_drivers_tell_us_what_they_tell_node_exporter(answers: dict[str, Any]) -> None:
    theirs = [row for row in answers["theirs"] if row[0].startswith("node_ethtool_")]
    ours = [row for row in answers["ours"] if row[0].startswith("node_ethtool_")]
    for row in ours:
        row[1] = "gauge" if row[1] == "info" else row[1]  # what an info metric is in the text format

    assert sorted(ours) == sorted(theirs)
    assert {dict(row[2])["device"] for row in theirs} == {"left", "right", "tap0", "br0"}
    assert len([row for row in theirs if row[0] != "node_ethtool_info"]) >= 10


def test_devices_without_statistics_are_said_to_have_none(answers: dict[str, Any]) -> None:
    assert answers["gaps"] == ["the driver has no statistics: lo, tap0, br0"]

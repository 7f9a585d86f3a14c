"""A fleet around a real daemon: the archive, Prometheus and VictoriaMetrics asked the same questions."""

from __future__ import annotations

import json
import subprocess
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from tests.e2e.conftest import RunningDaemon
    from tests.integration.conftest import Prometheus, VictoriaMetrics

MS = 10**6
PERIOD = "250ms"
LATE_NS = 250 * MS  # a scrape is stamped before the page is made, at most its time-out before: ticks come in between


def points(ended: subprocess.CompletedProcess[str]) -> dict[tuple[tuple[str, str], ...], list[tuple[int, float]]]:
    """The points of each series by its labels, without those a scraper adds."""
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return {
        tuple((k, v) for k, v in sorted(item["labels"].items()) if k not in ("job", "instance")): [
            (moment, value) for moment, value in item["points"]
        ]
        for item in answer["series"]
    }


class Growth:
    """How far a counter had come at each tick, added up from the archive's rates."""

    def __init__(self, rates: list[tuple[int, float]]) -> None:
        self._times = [moment for moment, _ in rates]
        self._sums = [0.0]
        for (before, _), (moment, rate) in pairwise(rates):
            self._sums.append(self._sums[-1] + rate * (moment - before) / 1e9)

    def at(self, moment: int) -> list[float]:
        """What a scrape at that moment can have seen; nothing outside of the time that is known."""
        newest = bisect_right(self._times, moment) - 1
        if newest < 0 or moment + LATE_NS > self._times[-1]:
            return []
        return self._sums[newest : bisect_right(self._times, moment + LATE_NS)]


def compare(rates: list[tuple[int, float]], growth: Growth) -> int:
    """Hold each rate of a server against what the archive has for the same time; gives how many could be."""
    compared = 0
    for (begin, _), (end, rate) in pairwise(rates):
        seconds = (end - begin) / 1e9
        possible = [(after - before) / seconds for before in growth.at(begin) for after in growth.at(end)]
        assert not possible or min(abs(rate - other) for other in possible) < 1e-6 * max(1.0, rate)
        compared += bool(possible)
    return compared


def test_servers_give_the_rates_of_the_archive(
    daemon: Callable[..., RunningDaemon],
    prometheus: Callable[..., Prometheus],
    victoria_metrics: Callable[..., VictoriaMetrics],
) -> None:
    running = daemon(period=PERIOD)
    target = urlsplit(running.metrics_url).netloc
    servers = [prometheus(target), victoria_metrics(target)]
    for server in servers:
        server.wait_for("count_over_time(node_load1[1m]) > 16")

    for metric in ("node_context_switches_total", 'node_cpu_seconds_total{mode!="steal"}'):
        asked = ("query", metric, "--rate", "--json")
        told = [points(running.sonde(*asked, "--server", server.url)) for server in servers]
        growth = {labels: Growth(rates) for labels, rates in points(running.sonde(*asked)).items()}
        for answer in told:
            assert answer.keys() == growth.keys()
            assert all(compare(rates, growth[labels]) >= 12 for labels, rates in answer.items())


def test_servers_answer_all_verbs_and_say_what_is_wrong(
    daemon: Callable[..., RunningDaemon],
    prometheus: Callable[..., Prometheus],
    victoria_metrics: Callable[..., VictoriaMetrics],
) -> None:
    running = daemon(period=PERIOD)
    target = urlsplit(running.metrics_url).netloc
    servers = [prometheus(target), victoria_metrics(target)]
    for server in servers:
        server.wait_for("count_over_time(node_load1[1m]) > 8")

    for server in servers:
        shown = Shown(running, server.url)
        assert shown.firsts("--list", "node_load*") == ["metric", "node_load1", "node_load15", "node_load5"]
        assert shown.firsts("node_load1")[:2] == ["node_load1", "time"]
        assert shown.firsts("node_load*", "--csv")[0].startswith("time,")
        assert [line.partition("{")[0] for line in shown.firsts("node_load?", "--spark")] == [
            "node_load1",
            "node_load5",
        ]
        summed = shown.object("node_cpu_seconds_total", "--rate", "--sum-by", "cpu", "--step", "1s", "--json")
        assert {tuple(item["labels"]) for item in summed["series"]} == {("cpu",)}
        (listed,) = shown.object("--list", "node_cpu_seconds_total", "--json")
        assert (listed["kind"], listed["unit"]) == ("counter", "seconds")
        assert shown.fault("node_laod1") == (3, "  did you mean node_load1 or node_load15 or node_load5?")
        assert "there are {instance=" in shown.fault('node_load1{instance="n7:1779"}')[1]
        assert shown.fault('node_load1{instance=~"a(?!b)"}')[0] == 2  # Python's expressions have it, RE2 does not


class Shown:
    """What `sonde query` prints about a server."""

    def __init__(self, running: RunningDaemon, url: str) -> None:
        self._running = running
        self._url = url

    def _query(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._running.sonde("query", *words, "--server", self._url)

    def firsts(self, *words: str) -> list[str]:
        """The first word of each line."""
        ended = self._query(*words)
        assert ended.returncode == 0, ended.stderr
        return [line.split()[0] for line in ended.stdout.splitlines()]

    def object(self, *words: str) -> Any:
        return json.loads(self._query(*words).stdout)

    def fault(self, *words: str) -> tuple[int, str]:
        """The exit code and the last line of the complaint."""
        ended = self._query(*words)
        return ended.returncode, ended.stderr.splitlines()[-1]

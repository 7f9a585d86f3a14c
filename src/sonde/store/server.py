"""Stored series of a Prometheus-compatible server, over its HTTP API: the archive's questions, asked of a fleet.

    GET /api/v1/query?query=node_load1{instance="n1:1779"}[300000ms]&time=1794782558.725
    {"status":"success","data":{"resultType":"matrix","result":[
      {"metric":{"__name__":"node_load1","instance":"n1:1779"},"values":[[1794782550.125,"0.42"]]}]}}

A range selector gives the samples as they were stored. Rates, steps and sums are worked out here from those, by the
functions that serve the archive too, so that both answer alike (docs/adr/0014). A long range is asked for in pieces.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from itertools import pairwise
from statistics import median_low
from typing import Any
from urllib.parse import urlencode

from sonde.clock import iso
from sonde.errors import Denied, ReadError, SondeError, Unavailable, UsageError
from sonde.httpclient import Client, Reply, Tls, TooLarge
from sonde.store.form import Series
from sonde.store.metadata import Metadata
from sonde.store.query import Points, Selector, Span

LIMIT = 2_000_000  # values of one answer: 150 MB of Python objects
_MS = 1_000_000  # ns; these servers keep milliseconds
_FIRST_MS = 3_600_000  # the first piece
_SHORTEST_MS = 10_000  # a piece that is refused as too large is not made shorter than this
_FEW = 100_000  # values; a piece with less is followed by a longer one
_SHOWN = 200  # characters of a server's complaint that are worth repeating
_CLASS = re.compile(r"\[(!?)(\]?[^\]]*)\]")  # a ] that comes first is one of the letters
_AUTH_HINT = "give a token with --token-file or user:password with --password-file"
_PATH_HINT = "the URL ends where /api/v1 begins: http://prometheus:9090, http://vmselect:8481/select/0/prometheus"


class _TooMany(SondeError):
    """A piece the server or we find too large."""


class ServerReader:
    """A `query.Source`. `notes` says what the caller should tell beside the answer."""

    def __init__(
        self, url: str, within: Span, *, headers: Mapping[str, str], tls: Tls | None = None, timeout: float = 30.0
    ) -> None:
        """`within` is the time that lists of names and series are about."""
        self.path = url.rstrip("/")
        self.damaged = 0
        self.notes: list[str] = []
        self._within = within
        self._client = Client(self.path, headers=headers, timeout=timeout, tls=tls)
        self._prefix = "/" + self.path.partition("://")[2].partition("/")[2]
        self._known: Metadata | None = None

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> ServerReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def span(self) -> Span | None:
        """Always None: these servers do not tell from when on they hold data."""
        return None

    def names(self) -> list[str]:
        found = self._ask("label/__name__/values", self._times())
        return sorted(map(str, found)) if isinstance(found, list) else []

    def series(self, selector: Selector | None = None) -> list[Series]:
        """The series that match, as far as they had values within the time this reader is about; by name."""
        asked = {"match[]": promql(selector or Selector("*"))} | self._times()
        try:
            found = self._ask("series", asked)
        except TooLarge:
            raise ReadError(f"{self.path} has more series than fit an answer", hint="select fewer") from None
        if not isinstance(found, list):
            raise ReadError(f"{self.path}: a list of series was expected")
        return sorted({self._series(labels) for labels in found if isinstance(labels, dict)})

    def _times(self) -> dict[str, str]:
        return {"start": _seconds(self._within.start_ns // _MS), "end": _seconds(self._within.end_ns // _MS)}

    def read(self, selector: Selector, since_ns: int, until_ns: int) -> list[Points]:
        """The values of every series that matches, from `since` to `until`, both included, as they were stored."""
        found = self._read(promql(selector), -(-since_ns // _MS), until_ns // _MS)
        if not found and self._metadata.is_histogram(selector.metric):
            parts = [selector._replace(metric=selector.metric + end) for end in ("_bucket", "_count", "_sum")]
            return [points for part in parts for points in self._read(promql(part), since_ns // _MS, until_ns // _MS)]
        return found

    def _read(self, expression: str, start: int, end: int) -> list[Points]:
        gathered: dict[Series, Points] = {}
        total, length = 0, _FIRST_MS
        while start <= end:
            last = min(start + length - 1, end)
            try:
                count = self._gather(gathered, expression, start, last)
            except (TooLarge, _TooMany) as error:
                length = self._shorter(min(length, last - start + 1), error)
                continue
            total += count
            start = last + 1
            if total >= LIMIT and start <= end:
                self.notes.append(
                    f"only the values up to {iso(last * _MS)} are here: {total} are as many as one answer holds;"
                    " ask for fewer series or for less time"
                )
                break
            if count < _FEW:
                length *= 2
            elif count > 4 * _FEW:
                length = max(length // 4, _SHORTEST_MS)
        for points in gathered.values():
            points.period_ns = _period_ns(points.times)
        return [gathered[series] for series in sorted(gathered) if gathered[series].times]

    def _shorter(self, length: int, error: SondeError) -> int:
        if length <= _SHORTEST_MS:
            raise ReadError(f"{self.path}: too many values at once ({error})", hint="select fewer series") from None
        return max(length // 4, _SHORTEST_MS)

    def _gather(self, gathered: dict[Series, Points], expression: str, start: int, last: int) -> int:
        """Add the samples from `start` to `last`, in ms; gives their number.

        Prometheus before 3.0 takes the left end of a range in, later ones and VictoriaMetrics leave it out: so a
        millisecond more is asked for and what is before `start` is dropped.
        """
        found = self._ask("query", {"query": f"{expression}[{last - start + 1}ms]", "time": _seconds(last)})
        result = found.get("result") if isinstance(found, dict) else None
        if not isinstance(result, list):
            raise ReadError(f"{self.path}: samples were expected")
        count = 0
        for item in result:
            try:
                series = self._series(item["metric"])
                samples = [(round(float(at) * 1000), _number(text)) for at, text in item["values"]]
            except (TypeError, ValueError, KeyError):
                raise ReadError(f"{self.path}: a series that makes no sense: {str(item)[:80]}") from None
            points = gathered.setdefault(series, Points(series, 0, [], []))
            # A stale marker is a NaN, and says that the series ended.
            kept = [(at, value) for at, value in samples if at >= start and value == value]
            points.times += [at * _MS for at, _ in kept]
            points.values += [value for _, value in kept]
            count += len(kept)
        return count

    def _series(self, labels: Mapping[str, str]) -> Series:
        metric = labels.get("__name__", "")
        kind, unit = self._metadata.family(metric)
        return Series(metric, kind, unit, tuple(sorted((k, v) for k, v in labels.items() if k != "__name__")))

    @property
    def _metadata(self) -> Metadata:
        if self._known is None:
            try:
                self._known = Metadata(self._ask("metadata", {}))
            except (UsageError, Unavailable, ReadError):  # not every server has it: names tell most of it
                self._known = Metadata()
        return self._known

    def _ask(self, what: str, parameters: Mapping[str, str]) -> Any:
        target = f"{self._prefix.rstrip('/')}/api/v1/{what}"
        reply = self._client.send(method="GET", target=f"{target}?{urlencode(parameters)}" if parameters else target)
        tree = _tree(reply)
        if reply.status != 200 or tree.get("status") != "success":
            raise self._refusal(reply, tree)
        self._remember(tree)
        return tree.get("data")

    def _remember(self, tree: Mapping[str, Any]) -> None:
        warnings = tree.get("warnings")
        told = [f"the server warns: {text}" for text in warnings] if isinstance(warnings, list) else []
        if tree.get("isPartial") is True:
            told.append("the server says that its answer is partial: a part of it does not answer")
        self.notes += [note for note in told if note not in self.notes]

    def _refusal(self, reply: Reply, tree: Mapping[str, Any]) -> SondeError:
        """What a refusal means for the one who asked."""
        said = str(tree.get("error", ""))[:_SHOWN]
        if reply.status in (401, 403):
            return Denied(f"{self.path} does not let this user ask ({reply.status})", hint=_AUTH_HINT)
        if reply.status in range(300, 400):
            to = reply.headers.get("location", "nowhere")
            return Unavailable(f"{self.path} sends us elsewhere ({reply.status})", hint=f"to {to}"[:_SHOWN])
        if reply.status == 422 and "samples" in said:
            return _TooMany(said)
        if said and reply.status in (400, 422):
            return UsageError(f"{self.path} refuses the question: {said}")
        if said or reply.status in (429, 502, 503, 504):
            return Unavailable(f"{self.path} cannot answer now ({reply.status}): {said or _first_line(reply)}")
        return ReadError(f"{self.path} does not speak Prometheus' API: {_description(reply)}", hint=_PATH_HINT)


def promql(selector: Selector) -> str:
    """The selector in PromQL: a shell pattern of names becomes an expression, matchers stay what they are."""
    matchers = [f"{label}{operator}{_quoted(value)}" for label, operator, value in selector.matchers]
    if not set(selector.metric) & set("*?["):
        return selector.metric + (f"{{{','.join(matchers)}}}" if matchers else "")
    return f"{{{','.join([f'__name__=~{_quoted(expression_of(selector.metric))}', *matchers])}}}"


def expression_of(pattern: str) -> str:
    """A shell pattern as an expression both RE2 and Python read; one that matches every name matches no empty one."""
    if not pattern.strip("*"):
        return ".+"
    place, parts = 0, []
    while place < len(pattern):
        letter = pattern[place]
        found = _CLASS.match(pattern, place)
        if found:
            letters = found[2].replace("[", "\\[").replace("]", "\\]")
            parts.append(f"[{'^' if found[1] else ''}{letters}]")
            place = found.end()
            continue
        parts.append({"*": ".*", "?": "."}.get(letter) or re.escape(letter))
        place += 1
    return "".join(parts)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _seconds(ms: int) -> str:
    return f"{ms // 1000}.{ms % 1000:03d}"


def _number(text: object) -> float:
    """`12345` stays whole, as counters are; everything else is a float."""
    word = str(text)
    return int(word) if word.isdigit() and len(word) < 19 else float(word)


def _period_ns(times: list[int]) -> int:
    """The usual distance of neighbours, to two digits: 14.998 s was meant to be 15 s."""
    apart = [after - before for before, after in pairwise(times) if after > before]
    if not apart:
        return 0
    usual = median_low(apart)
    return round(usual, 1 - math.floor(math.log10(usual)))


def _tree(reply: Reply) -> Mapping[str, Any]:
    try:
        tree = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _first_line(reply: Reply) -> str:
    return reply.body[:_SHOWN].decode("utf-8", "replace").strip().partition("\n")[0]


def _description(reply: Reply) -> str:
    kind = reply.headers.get("content-type", "no type").partition(";")[0]
    if kind == "text/html":
        return f"status {reply.status} and a web page"
    return f"status {reply.status}, {kind}, {_first_line(reply)!r}"

"""The /metrics page: the latest frame of every source, in the format the scraper asks for.

Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from sonde.clock import Clock, SystemClock
from sonde.http import Request, Response
from sonde.model import Frame, Kind, Layout, MetricSpec, Unit
from sonde.sinks.exposition import Format, Page, is_of_one_process

log = logging.getLogger(__name__)

DROPPED = MetricSpec(
    "sonde_exposition_families_dropped_total",
    Kind.COUNTER,
    Unit.NONE,
    "Metric families left out of this page because another source has the same name; counted once per page.",
)
_OWN = Layout([(DROPPED, ())])
_OWN_SOURCE = "exposition"
# Sources whose names are the users': on a clash the names that sonde gives are kept.
_GUESTS = frozenset({"textfile"})
_WHOLE = 4000  # series rendered in one turn of the loop: 1 to 2 ms; a larger page is sent in pieces
_REMEMBERED = 32  # different Accept headers


class PrometheusConfig(NamedTuple):
    processes: bool = False  # also the series of single processes; without it only sonde_process_tree_*


class PrometheusSink:
    """Keeps the latest frame of every source; `page` is a handler of the HTTP server.

    `write` is called by the sampling threads and only stores references; `page` runs in the loop's thread.
    """

    Config: ClassVar[type] = PrometheusConfig
    inline: ClassVar[bool] = True

    def __init__(self, config: PrometheusConfig, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._latest: dict[str, tuple[int, Frame]] = {}
        self._forms: dict[str, Format] = {}
        self._dropped_before = 0
        self._pages: dict[Format, Page] = {}
        self.configure(config)

    def configure(self, config: PrometheusConfig) -> None:
        """Take over another configuration; the latest frames stay, so that the page has no hole."""
        self._dropped_before = self.dropped
        self._processes = config.processes
        self._pages = {form: Page(form, self._wanted) for form in Format}

    def _wanted(self, spec: MetricSpec) -> bool:
        return self._processes or not is_of_one_process(spec)

    def write(self, frames: Sequence[Frame]) -> None:
        now = self._clock.monotonic_ns()
        latest = self._latest
        for frame in frames:
            latest[frame.source] = (now, frame)

    @property
    def dropped(self) -> int:
        return self._dropped_before + sum(page.dropped for page in self._pages.values())

    def frames(self) -> list[Frame]:
        """The frames that are not stale, in an order that does not depend on which came first.

        Age is by the monotonic clock since the frame arrived: a clock that is set does not empty the page.
        """
        now = self._clock.monotonic_ns()
        fresh = [frame for arrived, frame in tuple(self._latest.values()) if now - arrived <= 2 * frame.period_ns]
        fresh.sort(key=lambda frame: (frame.source in _GUESTS, frame.source))
        return fresh

    def page(self, request: Request) -> Response:
        form = self._form(request.headers.get("accept", ""))
        page = self._pages[form]
        frames = self.frames()
        own = Frame(_OWN_SOURCE, self._clock.time_ns(), 0, 0, _OWN, (self.dropped,))
        count, blocks = page.blocks([own, *frames])
        if count <= _WHOLE:
            return Response(200, "".join(blocks).encode("utf-8", "replace"), form.value)
        return Response(200, _encoded(blocks), form.value)

    def _form(self, accept: str) -> Format:
        form = self._forms.get(accept)
        if form is None:
            if len(self._forms) >= _REMEMBERED:
                self._forms.clear()
            form = self._forms[accept] = negotiate(accept)
        return form

    def close(self) -> None:
        """Nothing is held open; the frames go stale by themselves, also when a new pipeline takes over this sink."""


def _encoded(blocks: Iterator[str]) -> Iterator[bytes]:
    for block in blocks:
        yield block.encode("utf-8", "replace")


def negotiate(accept: str) -> Format:
    """OpenMetrics when the client asks for it and does not prefer plain text; else the text format."""
    openmetrics, text = 0.0, {"*/*": 0.0}
    for item in accept.lower().split(","):
        media, *parameters = (part.strip() for part in item.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        quality = _quality(values.get("q", "1"))
        if media == "application/openmetrics-text":
            if values.get("version", "1.0.0") == "1.0.0":
                openmetrics = max(openmetrics, quality)
        elif media in ("text/plain", "text/*", "*/*"):
            text[media] = max(text.get(media, 0.0), quality)
    plain = text.get("text/plain", text.get("text/*", text["*/*"]))
    return Format.OPENMETRICS if openmetrics > 0 and openmetrics >= plain else Format.TEXT


def _quality(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0

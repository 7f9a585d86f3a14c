"""Targets over HTTP, for Prometheus' http_sd_configs: a thread looks, the loop answers with what it saw last.

    GET /targets HTTP/1.1        200, application/json; 503 until the first look has succeeded

Prometheus keeps the targets it has when an answer fails, and takes every answer for the whole truth: so a look that
fails leaves the last good list in place.
"""

from __future__ import annotations

import sys

from sonde.cli.targets import Health, Looks, write
from sonde.errors import SondeError
from sonde.http import Request, Response, Server
from sonde.loop import Loop
from sonde.pipeline.worker import Worker
from sonde.units import Duration


class TargetPage:
    """Looks once per period in a thread of its own; scontrol and kubectl can take their time."""

    def __init__(self, discovery: Looks, period: Duration, path: str | None = None) -> None:
        self._discovery = discovery
        self._period = period
        self._path = path
        self._health = Health()
        self._body: bytes | None = None
        self._worker = Worker("targets", self._run)
        self.start = self._worker.start
        self.stop = self._worker.stop

    def _run(self) -> None:
        while not self._worker.stopping:
            self.look()
            self._worker.sleep(self._period)

    def look(self) -> None:
        try:
            text = self._discovery.text()
            self._body = text.encode()
            if self._path:
                write(self._path, text)
            self._health.good()
        except SondeError as error:
            self._health.bad(error)

    def answer(self, _request: Request) -> Response:
        if self._body is None:
            return Response(503, b"the first look has not succeeded yet\n")
        return Response(200, self._body, "application/json")


def serve(discovery: Looks, address: str, period: Duration, *, path: str | None, insecure: bool) -> int:
    """Answer until interrupted."""
    loop = Loop()
    page = TargetPage(discovery, period, path)
    server = Server(loop, {"/targets": page.answer})
    try:
        where = server.listen(address, insecure=insecure)
        print(f"http://{where}/targets", file=sys.stderr, flush=True)
        page.start()
        loop.run()
    finally:
        page.stop(1.0)
        server.close()
        loop.close()
    return 0

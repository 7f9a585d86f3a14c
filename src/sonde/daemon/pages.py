"""Pages that sinks have on ports of their own, beside the daemon's: what other systems' scrapers are pointed at.

[sinks.dynolog_prometheus]
address = "127.0.0.1:8080"        http://127.0.0.1:8080/metrics
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sonde.address import parse_address
from sonde.config import DaemonConfig
from sonde.errors import ConfigError, UsageError
from sonde.http import Handler, Request, Response, Server
from sonde.listening import require_local
from sonde.loop import Loop
from sonde.pipeline.outlet import Outlet


class _Page(NamedTuple):
    server: Server
    url: str


class Pages:
    """The servers of these pages. Belongs to the loop's thread."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._served: dict[tuple[str, str], _Page] = {}  # by the sink's name and its address
        self._handlers: dict[tuple[str, str], Handler] = {}

    @property
    def addresses(self) -> dict[str, str]:
        """Where each sink's page is, by the sink's name."""
        return {name: page.url for (name, _), page in self._served.items()}

    def serve(self, outlets: Iterable[Outlet], *, insecure: bool) -> None:
        """Serve the pages of these outlets and no others.

        A page whose address stays keeps its port and its connections. When an address cannot be had, Unavailable or
        ConfigError is raised and everything stays as it was.
        """
        wanted = {(o.name, o.sink.address): o.sink.page for o in outlets if has_page(o)}  # type: ignore[attr-defined]
        for name, address in wanted:
            check_address(f"sinks.{name}.address", address, insecure=insecure)
        fresh: dict[tuple[str, str], _Page] = {}
        try:
            for key in wanted:
                if key not in self._served:
                    fresh[key] = self._listen(key, insecure=insecure)
        except BaseException:
            for page in fresh.values():
                page.server.close()
            raise
        self._served |= fresh
        self._handlers = wanted
        for key in [key for key in self._served if key not in wanted]:
            self._served.pop(key).server.close()

    def _listen(self, key: tuple[str, str], *, insecure: bool) -> _Page:
        def page(request: Request) -> Response:
            return self._handlers[key](request)  # the sink of the configuration in force

        server = Server(self._loop, {"/metrics": page})
        try:
            return _Page(server, f"http://{server.listen(key[1], insecure=insecure)}/metrics")
        except BaseException:
            server.close()
            raise

    def close(self) -> None:
        for page in self._served.values():
            page.server.close()
        self._served.clear()


def has_page(outlet: Outlet) -> bool:
    return bool(getattr(outlet.sink, "address", "")) and hasattr(outlet.sink, "page")


def check_addresses(daemon: DaemonConfig) -> None:
    """Those of the daemon itself. With certificates whoever calls proves who it is, and may call from anywhere."""
    check_address("daemon.rpc_address", daemon.rpc_address, insecure=daemon.insecure or bool(daemon.certs_dir))
    check_address("daemon.http_address", daemon.http_address, insecure=daemon.insecure)


def check_address(key: str, text: str, *, insecure: bool) -> None:
    """Refuse an address that cannot be listened on, naming its dotted key; an empty one is switched off."""
    if text:
        try:
            require_local(parse_address(text), insecure=insecure)
        except (UsageError, ConfigError) as error:
            raise ConfigError(f"{key}: {error}", hint=error.hint) from None

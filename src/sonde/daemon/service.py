"""The daemon: puts loop, pipeline, servers and signals together, and takes them apart within two seconds.

SIGTERM and SIGINT flush and end. SIGHUP reopens the log files and reads the configuration again: a bad one is refused
with the reason and the old one stays in force; the same holds for certificates. A second SIGTERM ends at once.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from sonde import config as configuration
from sonde.agent import wire
from sonde.clock import SystemClock
from sonde.config import ArchiveConfig, Config, DaemonConfig, SinkConfig, TracingConfig, split
from sonde.daemon import companion as companions
from sonde.daemon import logs
from sonde.daemon.companion import Companion
from sonde.daemon.handlers import functions
from sonde.daemon.interpreter import keep_tidy, tune_interpreter
from sonde.daemon.pages import Pages, check_addresses
from sonde.daemon.paths import Paths
from sonde.errors import SondeError, Unavailable
from sonde.hostfs import HostFS
from sonde.http import Request, Response, Server
from sonde.ipc.endpoint import Endpoint
from sonde.ipc.processes import Processes
from sonde.loop import Loop
from sonde.model import Sink
from sonde.pipeline.assembly import Assembly, build_sinks, outlet_for
from sonde.pipeline.outlet import Outlet
from sonde.registry import COLLECTORS, forget
from sonde.rpc.server import RpcServer
from sonde.sinks.prometheus import PrometheusSink
from sonde.store.ring import Ring
from sonde.version import describe

if TYPE_CHECKING:
    from sonde.daemon.certificates import Certificates
    from sonde.tracing.functions import Tracing

log = logging.getLogger(__name__)

_RETRY_SECONDS = 60.0  # how often what was not available is tried again
_FIXED = ("rpc_address", "certs_dir", "http_address", "root", "host", "log_file")  # of [daemon]: read at the start only


class Daemon:
    """One running daemon. `run` returns the exit code. With a companion, it ends when that process does."""

    def __init__(
        self, config: Config, paths: Paths, *, reload: Callable[[], Config], companion: Companion | None = None
    ) -> None:
        self.config = config
        self._paths = paths
        self._reload = reload
        self._companion = companion
        self.host = HostFS(config.daemon.root)
        self.hostname = config.daemon.host or os.uname().nodename
        self.started_ns = time.monotonic_ns()
        self.addresses: dict[str, str] = {}
        self.ring = Ring()
        self._loop = Loop()
        self._rpc: RpcServer | None = None
        self._ipc: Endpoint | None = None
        self._tracing: Tracing | None = None
        self._making = threading.Lock()
        self.processes = Processes(self._loop, self.host)
        self._http: Server | None = None
        self._certificates: Certificates | None = None
        if config.daemon.certs_dir:
            from sonde.daemon.certificates import Certificates

            self._certificates = Certificates(config.daemon.certs_dir)
        self._pages = Pages(self._loop)
        self._stopping = False
        self._log_handler = logs.set_up(config.daemon)  # first: what is left out and why is said while building
        self._prometheus = PrometheusSink(PrometheusSink.Config())
        self._in_force: dict[str, tuple[object, list[Outlet]]] = {}  # by sink, its settings and what they made
        self._planned = self._in_force
        self.assembly = self._assemble(config)
        self._in_force = self._planned

    @property
    def config_source(self) -> str:
        return self.config.source

    @property
    def ipc_addresses(self) -> list[str]:
        """Where processes may register; none when tracing is off."""
        return self._ipc.addresses if self._ipc is not None else []

    @property
    def ipc_counts(self) -> dict[str, int]:
        """Datagrams of training processes: taken, without sense, and those whose sender did not take the answer."""
        ipc = self._ipc
        return {} if ipc is None else {name: getattr(ipc, name) for name in ("received", "malformed", "unanswered")}

    @property
    def archive_path(self) -> str | None:
        archive = self.config.archive
        return os.path.abspath(archive.path or self._paths.archive) if archive.enabled else None

    def _assemble(self, config: Config) -> Assembly:
        return Assembly(config, self.host, SystemClock(), self._outlets(config))

    def _outlets(self, config: Config) -> list[Outlet]:
        """Ring and page first: they only keep references. The archive last: its thread wakes when the batch is out."""
        planned: list[tuple[str, object, Callable[[], list[Outlet]]]] = [
            ("ring", None, lambda: [Outlet("ring", self.ring)])
        ]
        tables = dict(config.sinks)
        if config.daemon.http_address:
            page = tables.pop("prometheus", {})
            planned.append(("prometheus", page, lambda: self._page_outlet(page)))
        for name, table in tables.items():
            one = Config(sinks={name: table})
            planned.append((name, table, partial(build_sinks, one, self._make_sink)))
        if config.archive.enabled:
            archive = config.archive
            planned.append(("archive", archive, lambda: [Outlet("archive", self._archive(archive))]))
        # What nobody has changed goes on: with what it has queued, what it has counted and its connection.
        self._planned = {
            name: (settings, self._unchanged(name, settings) or make()) for name, settings, make in planned
        }
        return [outlet for _, outlets in self._planned.values() for outlet in outlets]

    def _unchanged(self, name: str, settings: object) -> list[Outlet]:
        before, outlets = self._in_force.get(name, (None, []))
        return outlets if before == settings else []

    def _page_outlet(self, table: Mapping[str, object]) -> list[Outlet]:
        common, own = split(SinkConfig, PrometheusSink.Config, table, "sinks.prometheus")
        self._prometheus.configure(own)
        return [outlet_for("prometheus", self._prometheus, common)] if common.enabled else []

    def tracing(self) -> Tracing:
        """What answers for traces. Made with the first request: most daemons never get one."""
        with self._making:  # whoever needs it first, in whichever thread
            if self._tracing is None:
                from sonde.tracing.functions import Tracing
                from sonde.tracing.journal import Journal

                self._tracing = Tracing(
                    self._loop,
                    self.host,
                    self.processes,
                    self.config.tracing,
                    Journal(self._paths.traces),
                    hostname=self.hostname,
                    addresses=self.ipc_addresses,
                )
            return self._tracing

    def _make_sink(self, name: str, cls: type, own: object) -> Sink:
        more = {"files": self.host} if getattr(cls, "reads_host", False) else {}
        sink: Sink = cls(own, host=self.hostname, **more)
        return sink

    def _archive(self, config: ArchiveConfig) -> Sink:
        from sonde.sinks.archive import ArchiveSink

        path = config.path or self._paths.archive
        boot_id = self.host.text("proc/sys/kernel/random/boot_id") if self.host.exists("proc/sys/kernel") else ""
        return ArchiveSink(path, config, host=self.hostname, boot_id=boot_id)

    def run(self, *, ready: Callable[[Daemon], None] | None = None) -> int:
        log.info(
            "sonde %s starts on %s, pid %d, configuration: %s",
            describe(),
            self.hostname,
            os.getpid(),
            self.config.source,
        )
        try:
            self._make_directories()
            self._listen()
            log.info("answers on %s", ", ".join(self.addresses.values()))  # with the ports the kernel has chosen
            self._take_signals()
            self.assembly.start()
            self._plan_retry()
            for absent in self.assembly.absent:
                if not absent.retry:
                    forget(COLLECTORS, absent.name)
            tune_interpreter()
            keep_tidy(self._loop)
            if ready is not None:
                ready(self)
            self._loop.run()
        finally:
            self._end()
        return 0

    def _make_directories(self) -> None:
        try:
            for folder in {self._paths.state, self._paths.runtime}:
                os.makedirs(folder, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"{error.filename}: {error.strerror}",
                hint="start with --state DIR to keep everything in a directory of yours",
            ) from None

    def _listen(self) -> None:
        daemon = self.config.daemon
        check_addresses(daemon)
        self._rpc = RpcServer(self._loop, functions(self))
        self.addresses["rpc"] = str(self._rpc.listen(f"unix:{self._paths.rpc_socket}"))
        if daemon.rpc_address:
            tls = self._certificates.context() if self._certificates else None
            self.addresses["tcp"] = str(self._rpc.listen(daemon.rpc_address, tls=tls, insecure=daemon.insecure))
        if daemon.http_address:
            self._http = Server(self._loop, {"/metrics": self._prometheus.page, "/healthz": self._health, "/": _index})
            where = self._http.listen(daemon.http_address, insecure=daemon.insecure)
            self.addresses["metrics"] = f"http://{where}/metrics"
        self._serve_pages(self.assembly, daemon)
        if self.config.tracing.enabled:
            self._listen_for_processes(self.config.tracing)

    def _listen_for_processes(self, config: TracingConfig) -> None:
        self._ipc = Endpoint(self._loop, self.processes.handle, self.processes.repeated)
        if config.abstract:
            self._ipc.listen(wire.daemon_address({}))
        if config.socket_dir:
            self._ipc.listen(wire.daemon_address({"KINETO_IPC_SOCKET_DIR": config.socket_dir}))
        self.addresses |= {f"ipc{n or ''}": name for n, name in enumerate(self._ipc.addresses)}

    def _serve_pages(self, assembly: Assembly, daemon: DaemonConfig) -> None:
        before = self._pages.addresses
        self._pages.serve(assembly.outlets, insecure=daemon.insecure)
        self.addresses = {name: url for name, url in self.addresses.items() if name not in before}
        self.addresses |= self._pages.addresses

    def _health(self, request: Request) -> Response:
        """200 while every collector keeps its pace; 503 naming those that do not."""
        now = time.monotonic_ns()
        late = [runner.name for runner in self.assembly.runners if runner.is_stale(now)]
        text = f"stale: {', '.join(late)}\n" if late else "ok\n"
        return Response(503 if late else 200, text.encode())

    def _take_signals(self) -> None:
        if self._companion is not None:
            companions.follow(self._loop, self.host, self._companion, self._stop)
            companions.ignore_signals()
            return
        signal.signal(signal.SIGTERM, lambda *_: self._loop.post(self._stop))
        signal.signal(signal.SIGINT, lambda *_: self._loop.post(self._stop))
        signal.signal(signal.SIGHUP, lambda *_: self._loop.post(self._hang_up))

    def _stop(self) -> None:
        if self._stopping:
            os._exit(1)  # asked twice: whoever asks is in a hurry
        self._stopping = True
        log.info("stopping")
        self._loop.stop()

    def _plan_retry(self) -> None:
        if self.assembly.waits:
            self._loop.call_at(time.monotonic() + _RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self.assembly.retry()
        self._plan_retry()

    def _hang_up(self) -> None:
        """Reopen the log files; take over a new configuration if it is good."""
        for reopen in (getattr(self._log_handler, "reopen", None), *map(_reopener, self.assembly.outlets)):
            if reopen is not None:
                reopen()
        if self._certificates is not None and self._rpc is not None:
            self._certificates.renew(self._rpc)
        try:
            config = self._reload()
            assembly = self._renewed(config)
        except SondeError as error:
            log.error("the configuration is refused and the old one stays: %s", error)
            return
        self._warn_of_fixed(config)
        old, self.assembly, self.config, self._in_force = self.assembly, assembly, config, self._planned
        old.stop(self.config.daemon.flush_deadline, keep=assembly.outlets)
        logging.getLogger().setLevel(config.daemon.log_level.upper())
        assembly.start()
        self._plan_retry()
        log.info("the configuration is read again: %s", config.source)

    def _renewed(self, config: Config) -> Assembly:
        """The pipeline of a new configuration, with its pages served; or an error, and nothing has changed."""
        assembly = self._assemble(config)
        try:
            self._serve_pages(assembly, config.daemon)
        except SondeError:
            assembly.stop(0, keep=self.assembly.outlets)
            raise
        return assembly

    def _warn_of_fixed(self, config: Config) -> None:
        for key in _FIXED:
            if getattr(config.daemon, key) != getattr(self.config.daemon, key):
                log.warning("daemon.%s has changed: it takes effect at the next start", key)
        if config.tracing != self.config.tracing:
            log.warning("[tracing] has changed: it takes effect at the next start")

    def _end(self) -> None:
        clean = self.assembly.stop(self.config.daemon.flush_deadline)
        for server in (self._rpc, self._http, self._pages, self._ipc, self._tracing, self.processes):
            if server is not None:
                server.close()
        self._loop.close()
        log.info("stopped" if clean else "stopped; something hung and was left behind")
        if not clean:
            # A hung thread would keep the interpreter from ending.
            logging.shutdown()
            os._exit(1)


def _reopener(outlet: Outlet) -> Callable[[], None] | None:
    return getattr(outlet.sink, "reopen", None)


def _index(request: Request) -> Response:
    return Response(200, b"sonde: /metrics for Prometheus, /healthz for health\n")


def config_from(
    path: str | None, paths: Paths, changes: Mapping[str, object], *, archive: bool, tracing: bool | None = None
) -> Config:
    """The configuration file in force, with what the command line changes of [daemon], and switches off or on."""
    tree, source = configuration.read(path or paths.config) if path or os.path.exists(paths.config) else ({}, "")
    config = configuration.from_tree(tree, source or "built-in defaults")
    daemon = configuration.bind(DaemonConfig, {**configuration.table(tree, "daemon"), **changes}, "daemon")
    if not archive:
        config = config._replace(archive=config.archive._replace(enabled=False))
    if tracing is not None:
        config = config._replace(tracing=config.tracing._replace(enabled=tracing))
    return config._replace(daemon=daemon)

"""The daemon's certificates, from [daemon] certs_dir: read at the start, and again at SIGHUP."""

from __future__ import annotations

import logging
import os
import ssl

from sonde.errors import ConfigError, SondeError
from sonde.rpc.server import RpcServer
from sonde.rpc.tls import PASSWORD_FILE, password_of, server_context

log = logging.getLogger(__name__)


class Certificates:
    """Makes contexts. The password of a key that was typed on a terminal is remembered: nobody types it at SIGHUP."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._password: str | None = None
        self._serving = False  # then the loop must not wait for somebody to type

    def context(self) -> ssl.SSLContext:
        try:
            return server_context(self._directory, password=self._remembered)
        except ConfigError as error:
            raise ConfigError(f"daemon.certs_dir: {error}", hint=error.hint) from None

    def renew(self, server: RpcServer) -> None:
        """Take over new files, for new connections; bad ones are refused and the old ones stay in force."""
        try:
            self._serving = True
            server.renew(self.context())
        except SondeError as error:
            log.error("the certificates are refused and the old ones stay: %s", error)
        else:
            log.info("the certificates are read again: %s", self._directory)

    def _remembered(self, path: str) -> str:
        if self._password is not None and not os.environ.get(PASSWORD_FILE):
            return self._password
        if self._serving and not os.environ.get(PASSWORD_FILE):
            raise ConfigError(
                f"{path} is encrypted since the start, and nobody can be asked for its password now",
                hint=f"start with ${PASSWORD_FILE} naming a file of mode 600",
            )
        self._password = password_of(path)
        return self._password

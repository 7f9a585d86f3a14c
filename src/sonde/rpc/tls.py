"""The TLS contexts of a daemon and of its clients, from a directory of PEM files; each defect of ours has its message.

    /etc/sonde/certs/   0700, the user's own or root's
      server.crt        our certificate, with its chain behind it; client.crt for a client
      server.key        0600; when it is encrypted, $SONDE_KEY_PASSWORD_FILE or the terminal has the password
      ca.crt            the authorities we trust
      ca.crl            what they have revoked; may be missing

The other side's certificate is the matter of sonde.rpc.handshake.
"""

from __future__ import annotations

import os
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from sonde.errors import ConfigError, Denied, ParseError
from sonde.rpc.certificates import (
    Flaw,
    Role,
    flaws_of_authority,
    flaws_of_leaf,
    flaws_of_list,
    is_revoked,
)
from sonde.rpc.verdicts import verdict
from sonde.rpc.x509 import Certificate, RevocationList, parse_certificate, parse_pem, parse_revocation_list
from sonde.tlserrors import reason_of, words

PASSWORD_FILE = "SONDE_KEY_PASSWORD_FILE"  # noqa: S105 - the name of a variable
T = TypeVar("T")
Password = Callable[[str], str]  # asked with the path of the key

# Of TLS 1.2; those of 1.3 are fixed. Level 3 is 128 bits (SSL_CTX_set_security_level(3)): OpenSSL refuses weaker keys
# and digests also in certificates between a peer's and its authority's, which nobody shows us.
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:@SECLEVEL=3"
_LARGEST = 2**20  # bytes of a file


class Defect(NamedTuple):
    """What is wrong with a file of ours."""

    path: str
    text: str  # goes on where the path ends
    hint: str
    code: str = ""

    def error(self) -> ConfigError:
        return ConfigError(f"{self.path} {self.text}", hint=self.hint)


class Material(NamedTuple):
    """The files of a directory, read."""

    directory: str
    role: Role
    chain: tuple[Certificate, ...]  # ours first
    authorities: tuple[Certificate, ...]
    lists: tuple[RevocationList, ...]
    encrypted: bool  # is the key?

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    @property
    def certificate_path(self) -> str:
        return self.path(f"{self.role}.crt")

    @property
    def key_path(self) -> str:
        return self.path(f"{self.role}.key")


def server_context(directory: str, *, password: Password | None = None) -> ssl.SSLContext:
    """For a daemon. Raises ConfigError or Denied, naming the file and the next step."""
    return _context(_checked(directory, "server"), password or password_of)


def client_context(directory: str, *, password: Password | None = None) -> ssl.SSLContext:
    """For whoever calls a daemon; the host's name is checked against its certificate."""
    return _context(_checked(directory, "client"), password or password_of)


def _checked(directory: str, role: Role) -> Material:
    for defect in defects_of_modes(directory, role):
        raise defect.error()
    material = read_material(directory, role)
    for defect in defects_of_files(material, time.time()):
        raise defect.error()
    return material


def defects_of_modes(directory: str, role: Role) -> Iterator[Defect]:
    """The directory and the key are nobody else's to read, and nothing is anybody else's to write."""
    names = (f"{role}.key", f"{role}.crt", "ca.crt", "ca.crl")
    for path, forbidden, mode in (
        (directory, 0o077, "700"),
        (os.path.join(directory, names[0]), 0o077, "600"),
        *((os.path.join(directory, name), 0o022, "600") for name in names[1:]),
    ):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            if path == directory:
                hint = "`sonde certs` makes certificates: docs/how-to/certificates.md"
                yield Defect(path, "is not there", hint, "missing")
            continue  # reading tells of a file that is missing
        except OSError as error:
            raise _unreadable(path, error) from None
        if stat.S_IMODE(status.st_mode) & forbidden:
            verb = "be read" if status.st_mode & forbidden & 0o044 else "be changed"
            text = f"may {verb} by others: its mode is {stat.S_IMODE(status.st_mode):o}"
            yield Defect(path, text, f"chmod {mode} {path}", "mode")
        if status.st_uid not in (0, os.geteuid()):
            yield Defect(path, f"belongs to uid {status.st_uid}, not to us or root", f"chown it: {path}", "owner")


def read_material(directory: str, role: Role) -> Material:
    def path(name: str) -> str:
        return os.path.join(directory, name)

    certificate = path(f"{role}.crt")
    listed = path("ca.crl")
    return Material(
        directory=directory,
        role=role,
        chain=read_certificates(certificate),
        authorities=read_certificates(path("ca.crt")),
        lists=read_lists(listed) if os.path.exists(listed) else (),
        encrypted=b"ENCRYPTED" in read_file(path(f"{role}.key")),
    )


def read_certificates(path: str) -> tuple[Certificate, ...]:
    """Those of a PEM file, at least one. Raises ConfigError or Denied."""
    return _parsed(path, "CERTIFICATE", parse_certificate)


def read_lists(path: str) -> tuple[RevocationList, ...]:
    return _parsed(path, "X509 CRL", parse_revocation_list)


def _parsed(path: str, label: str, parse: Callable[[bytes, str], T]) -> tuple[T, ...]:
    text = read_file(path)
    try:
        found = tuple(parse(der, path) for der in parse_pem(text, label, path))
    except ParseError as error:
        raise ConfigError(f"{error}", hint="copy it again, or make a new one") from None
    if not found:
        raise ConfigError(f"{path} holds no {label.lower()} in PEM", hint=f"it begins with -----BEGIN {label}-----")
    return found


def read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            text = file.read(_LARGEST + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(text) > _LARGEST:
        raise ConfigError(f"{path} is too large for what it should be")
    return text


def _unreadable(path: str, error: OSError) -> ConfigError | Denied:
    if isinstance(error, PermissionError):
        return Denied(f"{path}: this user may not read it")
    if isinstance(error, FileNotFoundError):
        return ConfigError(
            f"{path} is not there",
            hint="a directory has server.crt and server.key or client.crt and client.key, ca.crt",
        )
    return ConfigError(f"{path}: {error.strerror}")


def defects_of_files(material: Material, now: float) -> Iterator[Defect]:
    """Everything that can be seen without a key: see sonde.rpc.certificates."""

    def defects(path: str, flaws: Iterator[Flaw]) -> Iterator[Defect]:
        return (Defect(path, flaw.text, flaw.hint, flaw.code) for flaw in flaws)

    own = material.certificate_path
    yield from defects(own, flaws_of_leaf(material.chain[0], material.role, now))
    for between in material.chain[1:]:
        yield from defects(f"{own}: {between.subject}", flaws_of_authority(between, now))
    for authority in material.authorities:
        yield from defects(material.path("ca.crt"), flaws_of_authority(authority, now))
    known = (*material.authorities, *material.chain[1:])
    for found in material.lists:
        yield from defects(material.path("ca.crl"), flaws_of_list(found, known, now))
    if is_revoked(material.chain[0], material.lists):
        yield Defect(own, "is revoked: it is listed in ca.crl", "ask for a new certificate", "revoked")


def password_of(path: str) -> str:
    """The password of an encrypted key: out of a file, or typed on the terminal."""
    named = os.environ.get(PASSWORD_FILE)
    if named:
        return _password_in(named)
    try:
        os.close(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        raise ConfigError(
            f"{path} is encrypted, and there is no terminal to ask for its password",
            hint=f"write the password into a file of mode 600 and name it in ${PASSWORD_FILE}",
        ) from None
    from getpass import getpass

    return getpass(f"password of {path}: ")


def _password_in(path: str) -> str:
    text = read_file(path)
    if stat.S_IMODE(os.stat(path).st_mode) & 0o077:
        raise ConfigError(f"{path} may be read by others", hint=f"chmod 600 {path}")
    return text.decode("utf-8", "replace").rstrip("\r\n")


def _context(material: Material, password: Password) -> ssl.SSLContext:
    server = material.role == "server"
    secret = password(material.key_path) if material.encrypted else ""
    context = _verifying(material, ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    _load_key(context, material, secret)
    _prove(material, secret)
    if server:
        context.num_tickets = 0  # a connection is one request: nobody comes back to resume it
    else:
        context.check_hostname = True
    return context


def _verifying(material: Material, protocol: int) -> ssl.SSLContext:
    """A context that wants a certificate of one of our authorities and knows what they have revoked."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.hostname_checks_common_name = False
    # ca.crt may hold an authority that is itself signed by one we are not asked to trust.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(material.path("ca.crt"))
        if material.lists:
            context.load_verify_locations(material.path("ca.crl"))
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except OSError as error:
        raise ConfigError(f"{material.directory}: cannot use ca.crt and ca.crl: {words(error)}") from None
    return context


def _load_key(context: ssl.SSLContext, material: Material, secret: str) -> None:
    try:
        context.load_cert_chain(material.certificate_path, material.key_path, password=secret)
    except (OSError, ValueError) as error:
        if reason_of(error) == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"{material.key_path} does not belong to {material.certificate_path}", hint="copy both again"
            ) from None
        if material.encrypted:
            raise ConfigError(
                f"the password does not open {material.key_path}", hint=f"is ${PASSWORD_FILE} the right file?"
            ) from None
        raise ConfigError(
            f"cannot use {material.key_path}: {words(error)}", hint="it is a private key in PEM"
        ) from None


def _prove(material: Material, secret: str) -> None:
    """Show our certificate to ourselves: OpenSSL says whether whoever trusts ca.crt will take it. About 2 ms.

    The handshake goes as far as the verification and no further; nothing leaves the process.
    """
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if material.role == "server" else ssl.PROTOCOL_TLS_CLIENT)
    ours.check_hostname = False
    ours.verify_mode = ssl.CERT_NONE
    _load_key(ours, material, secret)
    if material.role == "server":
        client, server = _verifying(material, ssl.PROTOCOL_TLS_CLIENT), ours
    else:
        client, server = ours, _verifying(material, ssl.PROTOCOL_TLS_SERVER)
        _load_key(server, material, secret)  # a server must show something; this client does not look
    try:
        _shake(client, server)
    except ssl.SSLCertVerificationError as error:
        found = verdict(error)
        raise ConfigError(f"{material.certificate_path} {found.text}", hint=found.hint) from None
    except ssl.SSLError as error:
        raise ConfigError(f"{material.certificate_path} cannot be used: {words(error)}") from None


def _shake(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """A handshake in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True))
    for _ in range(3):  # hello and answer, certificates, what is left
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue

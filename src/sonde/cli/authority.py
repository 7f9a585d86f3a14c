"""An authority of one's own: makes keys, signs certificates and revokes them, with the package cryptography.

DIR/             0700
  ca.crt ca.key ca.crl
  issued/        a copy of every certificate, by serial number: what is not here cannot be revoked by name
  hosts/n1/      server.crt server.key ca.crt ca.crl: goes to the node
  clients/ada/   client.crt client.key ca.crt ca.crl: goes to the user
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Literal, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sonde.errors import ConfigError, Denied, SondeError, UsageError
from sonde.rpc.certificates import is_revoked
from sonde.rpc.tls import password_of, read_certificates, read_file, read_lists
from sonde.rpc.x509 import Certificate

Kind = Literal["host", "client"]
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

_SKEW = timedelta(minutes=5)  # a node whose clock is a little behind must not find a new certificate too young
_RSA_BITS = 3072
_LONGEST_NAME = 64  # ub-common-name (RFC 5280, A.1)
_FOLDERS = {"host": "hosts", "client": "clients"}
_ROLES = {"host": "server", "client": "client"}
_PURPOSES = {"host": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


class Wanted(NamedTuple):
    """What a certificate shall be for."""

    kind: Kind
    name: str  # its CN: the user's of a client
    names: Sequence[str] = ()  # a host's
    addresses: Sequence[str] = ()


class Making(NamedTuple):
    """How it shall be made."""

    days: int
    rsa: bool = False
    force: bool = False  # replace what is there


class Issued(NamedTuple):
    kind: Kind
    name: str
    directory: str
    certificate: Certificate


class Authority:
    """What is kept in a directory. Raises SondeErrors that name the file and the next step."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)

    def path(self, *names: str) -> str:
        return os.path.join(self.directory, *names)

    def create(self, name: str, making: Making) -> Certificate:
        """A new authority with an empty revocation list."""
        if os.path.exists(self.path("ca.key")) and not making.force:
            raise UsageError(
                f"{self.directory} is an authority already",
                hint="use it, choose another --dir, or --force to replace it: what it has signed is then worth nothing",
            )
        key = _new_key(making)
        subject = _name(name)
        now = datetime.now(UTC)
        certificate = (
            _builder(subject, subject, key, now + timedelta(days=making.days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
            .sign(key, SHA256())
        )
        _make_directory(self.directory)
        _write(self.path("ca.key"), _key_pem(key))
        _write(self.path("ca.crt"), certificate.public_bytes(Encoding.PEM))
        self._write_list(key, certificate, (), None)
        return self.certificate

    @property
    def certificate(self) -> Certificate:
        return read_certificates(self.path("ca.crt"))[0]

    def issue(self, wanted: Wanted, making: Making) -> Issued:
        """A certificate and its key, in a directory to be copied."""
        directory = self.path(_FOLDERS[wanted.kind], wanted.name)
        own = os.path.join(directory, _ROLES[wanted.kind])
        if os.path.exists(f"{own}.key") and not making.force:
            raise UsageError(
                f"{directory} holds a certificate already",
                hint="--force makes a new one; the old one stays valid until it is revoked",
            )
        key = _new_key(making)
        certificate = self._signed(wanted, key, making.days)
        text = certificate.public_bytes(Encoding.PEM)
        for folder in (self.path(_FOLDERS[wanted.kind]), directory, self.path("issued")):
            _make_directory(folder)
        _write(self.path("issued", f"{certificate.serial_number:x}.crt"), text)
        _write(f"{own}.key", _key_pem(key))
        _write(f"{own}.crt", text)
        for shared in ("ca.crt", "ca.crl"):
            _write(os.path.join(directory, shared), read_file(self.path(shared)))
        return Issued(wanted.kind, wanted.name, directory, read_certificates(f"{own}.crt")[0])

    def _signed(self, wanted: Wanted, key: PrivateKey, days: int) -> x509.Certificate:
        own_key, own = self._own()
        # Nothing outlives its authority.
        until = min(datetime.now(UTC) + timedelta(days=days), own.not_valid_after_utc)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(own_key.public_key())
        builder = (
            _builder(_name(wanted.name), own.subject, key, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([_PURPOSES[wanted.kind]]), critical=False)
            .add_extension(signer, critical=False)
        )
        alternatives = _alternatives(wanted)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return builder.sign(own_key, SHA256())

    def issued(self) -> Iterator[Issued]:
        """Everything that was ever signed here, in no order."""
        folder = self.path("issued")
        for file in os.listdir(folder) if os.path.isdir(folder) else ():
            certificate = read_certificates(os.path.join(folder, file))[0]
            kind: Kind = "host" if "serverAuth" in (certificate.purposes or ()) else "client"
            yield Issued(kind, certificate.user, self.path(_FOLDERS[kind], certificate.user), certificate)

    def is_revoked(self, one: Issued) -> bool:
        return is_revoked(one.certificate, read_lists(self.path("ca.crl")))

    def revoke(self, chosen: Sequence[Issued], *, days: int | None) -> list[str]:
        """Put certificates on the list, and write it wherever a copy of it is known here; gives the files written."""
        key, own = self._own()
        return self._write_list(key, own, [one.certificate.serial for one in chosen], days)

    def _own(self) -> tuple[PrivateKey, x509.Certificate]:
        path = self.path("ca.key")
        if not os.path.exists(path):
            raise ConfigError(f"{self.directory} is no authority: it has no ca.key", hint="sonde certs init makes one")
        text = read_file(path)
        password = password_of(path).encode() if b"ENCRYPTED" in text else None
        try:
            key = load_pem_private_key(text, password)
            certificate = x509.load_pem_x509_certificate(read_file(self.path("ca.crt")))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"cannot use {path}: {error}", hint="are key and password those of ca.crt?") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ConfigError(f"{path} is a key of a kind that is not signed with here", hint="use EC or RSA")
        return key, certificate

    def _write_list(
        self, key: PrivateKey, own: x509.Certificate, serials: Sequence[int], days: int | None
    ) -> list[str]:
        """The list with some more on it; without `days` it is good for as long as the authority is."""
        now = datetime.now(UTC)
        until = now + timedelta(days=days) if days is not None else own.not_valid_after_utc
        builder = x509.CertificateRevocationListBuilder().issuer_name(own.subject)
        builder = builder.last_update(now - _SKEW).next_update(until)
        builder = builder.add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
        entries = {entry.serial_number: entry for entry in self._listed(key)}
        for serial in serials:
            fresh = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            entries.setdefault(serial, fresh)
        for entry in entries.values():
            builder = builder.add_revoked_certificate(entry)
        text = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
        written = [self.path("ca.crl"), *self._copies()]
        for path in written:
            _write(path, text)
        return written

    def _listed(self, key: PrivateKey) -> list[x509.RevokedCertificate]:
        """What is on the list now. One that another authority signed here before us says nothing about ours."""
        path = self.path("ca.crl")
        if not os.path.exists(path):
            return []
        found = x509.load_pem_x509_crl(read_file(path))
        return list(found) if found.is_signature_valid(key.public_key()) else []

    def _copies(self) -> list[str]:
        """The lists in the directories of hosts and clients."""
        found = []
        for folder in map(self.path, _FOLDERS.values()):
            names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            found += [os.path.join(folder, name, "ca.crl") for name in names]
        return [path for path in found if os.path.exists(path)]


def _name(text: str) -> x509.Name:
    if not 1 <= len(text) <= _LONGEST_NAME:
        raise UsageError(f"a name has 1 to {_LONGEST_NAME} characters: {text!r} has {len(text)}")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _new_key(making: Making) -> PrivateKey:
    return rsa.generate_private_key(65537, _RSA_BITS) if making.rsa else ec.generate_private_key(ec.SECP256R1())


def _builder(subject: x509.Name, issuer: x509.Name, key: PrivateKey, until: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _SKEW)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(wanted: Wanted) -> list[x509.GeneralName]:
    try:
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in wanted.names]
        return names + [x509.IPAddress(ip_address(address)) for address in wanted.addresses]
    except ValueError as error:
        raise UsageError(f"a certificate cannot be for that: {error}") from None


def _key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _make_directory(path: str) -> None:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        os.chmod(path, 0o700)
    except OSError as error:
        raise _failed(path, error) from None


def _write(path: str, data: bytes) -> None:
    """Replace a file in one step; it is nobody else's to read from the beginning."""
    fresh = f"{path}.new"
    try:
        if os.path.lexists(fresh):
            os.unlink(fresh)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(fresh, path)
    except OSError as error:
        raise _failed(path, error) from None


def _failed(path: str, error: OSError) -> SondeError:
    message = f"{path}: {error.strerror}"
    return Denied(message) if isinstance(error, PermissionError) else SondeError(message)

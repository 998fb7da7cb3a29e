"""Several nodes on one machine without public names or certificates: `.test` on loopback, under a throw-away authority.

RFC 6761 §6.2 keeps ``.test`` off the public internet; the authority's certificate is constrained to it (RFC 5280
§4.2.1.10), so that even a browser that trusted it would believe nothing else from it.
"""

from __future__ import annotations

import fcntl
import json
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from deedbox.clock import Clock, SystemClock
from deedbox.domains import is_development, wire_domain
from deedbox.refusals import Fault, Refusal

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

LOOPBACK = "127.0.0.1"
AUTHORITY_LIFE = timedelta(days=30)
LEAF_LIFE = timedelta(days=7)
RENEWED_BEFORE = timedelta(days=8)


class LoopbackResolver:
    """Which port of this machine answers for a ``.test`` name.

    With a folder, every process that names the same folder sees the same names; without one, only this object does.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._ports: dict[str, int] = {}
        if folder:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def register(self, name: str, port: int) -> None:
        """Answer for a name from now on; another node's older claim to it is replaced. Raises ``Refusal``."""
        name = development_name(name)
        if not 0 < port < 65536:
            raise ValueError(f"port {port} does not exist")
        self._ports[name] = port
        if self._folder:
            _write_private(self._folder / name, json.dumps({"port": port}).encode())

    def withdraw(self, name: str) -> None:
        """Stop answering for a name, if this object's claim to it still stands."""
        port = self._ports.pop(name, None)
        if self._folder and port and _registered_port(self._folder / name) == port:
            (self._folder / name).unlink(missing_ok=True)

    def address(self, name: str) -> tuple[str, int] | None:
        """The loopback literal and port of a name in the form ``wire_domain`` returns, or ``None``."""
        if not is_development(name) or "/" in name:
            return None
        port = _registered_port(self._folder / name) if self._folder else self._ports.get(name)
        return (LOOPBACK, port) if port else None


class LocalAuthority:
    """A certificate authority for ``.test`` that lives for a month in a folder only its owner can read.

    Processes that share the folder share the authority; its key never leaves the folder. Files: ``authority.pem`` with
    certificate and key (0600), ``trust.pem`` with the certificate alone, and one ``name.pem`` per certificate issued.
    ``clock`` should tell the machine's time, for by that the other side of a TLS connection judges certificates.
    """

    def __init__(self, folder: Path, clock: Clock | None = None) -> None:
        self._folder = folder
        self._clock = clock or SystemClock()
        self._trust: ssl.SSLContext | None = None
        self._trusted = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def certificate(self) -> Path:
        """The file of the authority's certificate, for ``curl --cacert`` and the like."""
        self._authority()
        return self._folder / "trust.pem"

    def trust(self) -> ssl.SSLContext:
        """A client context that believes this authority alone; the same object until the authority is renewed."""
        file = self._folder / "trust.pem" if self._trust else self.certificate
        written = file.stat().st_mtime_ns
        if self._trust is None or written != self._trusted:
            self._trust = ssl.create_default_context(cafile=file)
            self._trusted = written
        return self._trust

    def server_context(self, name: str) -> ssl.SSLContext:
        """A server context with a fresh certificate for a ``.test`` name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue(name))
        return context

    def issue(self, name: str) -> Path:
        """A PEM file (0600) with a new key and its certificate for a ``.test`` name. Raises ``Refusal``."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        name = development_name(name)
        issuer, issuer_key = self._authority()
        key = ec.generate_private_key(ec.SECP256R1())
        server_only = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        builder = (
            self._builder(name, issuer.subject, key, LEAF_LIFE)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(server_only, critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        )
        file = self._folder / f"{name}.pem"
        _write_private(file, _pem(_signed(builder, issuer_key), key))
        return file

    def _authority(self) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
        """The authority of the folder, made or renewed by whoever comes first."""
        with _locked(self._folder / "lock"):
            file = self._folder / "authority.pem"
            if file.exists():
                certificate, key = _parsed(file.read_bytes())
                if certificate.not_valid_after_utc > self._now() + RENEWED_BEFORE:
                    return certificate, key
            certificate, key = self._made()
            pem = _pem(certificate, key)
            _write_private(file, pem)
            _write_private(self._folder / "trust.pem", pem[: pem.index(b"-----BEGIN PRIVATE")])
            return certificate, key

    def _made(self) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        title = "deedbox development authority"
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, title)])
        no_address = [x509.IPAddress(ip_network(text)) for text in ("0.0.0.0/0", "::/0")]
        only_test = x509.NameConstraints(permitted_subtrees=[x509.DNSName("test")], excluded_subtrees=no_address)
        builder = (
            self._builder(title, subject, key, AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_certificate_signing(), critical=True)
            .add_extension(only_test, critical=True)
        )
        return _signed(builder, key), key

    def _builder(
        self, title: str, issuer: x509.Name, key: EllipticCurvePrivateKey, life: timedelta
    ) -> x509.CertificateBuilder:
        from cryptography import x509

        now = self._now()
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, title[:64])])
        return (
            x509.CertificateBuilder(issuer, subject, key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + life)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now() // 1000, UTC)


class Development:
    """The switch: what ``deedbox.outgoing`` asks for ``.test`` names. A node of a public name cannot turn it.

    ``domain`` is the node's own and must end in ``.test``; ``folder`` is what nodes of this machine share.
    """

    def __init__(self, domain: str, folder: Path) -> None:
        self.domain = development_name(domain)
        self.names = LoopbackResolver(folder / "names")
        self.authority = LocalAuthority(folder / "authority")

    def address(self, host: str) -> tuple[str, int] | None:
        """The loopback literal and port of a registered name, or ``None``."""
        return self.names.address(host)

    def trust(self) -> ssl.SSLContext:
        """The client context that trusts the local authority and nothing else."""
        return self.authority.trust()

    @contextmanager
    def serving(self, port: int) -> Iterator[ssl.SSLContext]:
        """Registers the node's own name while its listener on ``port`` lives; yields the listener's TLS context."""
        context = self.authority.server_context(self.domain)
        self.names.register(self.domain, port)
        try:
            yield context
        finally:
            self.names.withdraw(self.domain)


def development_name(name: str) -> str:
    """The name in wire form, if it lies under ``.test``; else ``Refusal("not_development")``."""
    name = wire_domain(name, development=True)
    if not is_development(name):
        raise Refusal("not_development", 400, f"{name} is not under .test", fault=Fault.OURS)
    return name


def _registered_port(file: Path) -> int | None:
    try:
        port = json.loads(file.read_bytes())["port"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return port if isinstance(port, int) and 0 < port < 65536 else None


def _certificate_signing() -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        key_cert_sign=True,
        crl_sign=False,
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(builder: x509.CertificateBuilder, key: EllipticCurvePrivateKey) -> x509.Certificate:
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())


def _pem(certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM) + secret


def _parsed(pem: bytes) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Refusal("not_development", 500, "the development authority's file holds another key", fault=Fault.OURS)
    return x509.load_pem_x509_certificate(pem), key


def _write_private(file: Path, content: bytes) -> None:
    """Replaces a file at once, readable by its owner only from its first byte."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
    draft.replace(file)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("ab") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield

"""A node and the judge on loopback, each under a name of its own, with TLS by an authority made for the occasion."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deedbox_conformance import Client, Peer, Probe, Trust
from tests.conformance.honest import HonestNode
from tests.conformance.honest_replies import OWNER_KEY

NODE, JUDGE = "node.test", "judge.test"
AGENT = f"judge@{JUDGE}"


@dataclass(frozen=True, slots=True)
class Papers:
    """An authority and one certificate for both names, as PEM files."""

    authority: Path
    certificate: Path
    key: Path

    def served(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def make_papers(folder: Path) -> Papers:
    papers = Papers(folder / "authority.pem", folder / "cert.pem", folder / "key.pem")
    top, leaf = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority of the test")])
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NODE)])
    names = x509.SubjectAlternativeName([x509.DNSName(NODE), x509.DNSName(JUDGE)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(top.public_key())
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    root = _blank(issuer, issuer, top.public_key()).add_extension(x509.BasicConstraints(True, 0), True)
    root = root.add_extension(usage, True).add_extension(identifier, False)
    cert = _blank(issuer, subject, leaf.public_key()).add_extension(names, False)
    cert = cert.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False)
    papers.authority.write_bytes(root.sign(top, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    papers.certificate.write_bytes(cert.sign(top, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    papers.key.write_bytes(leaf.private_bytes(serialization.Encoding.PEM, *form))
    return papers


def _blank(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))


async def _no_sleep(seconds: float) -> None:
    return None


def lookup_client(papers: Papers, addresses: dict[str, tuple[str, int]]) -> Client:
    """Who finds both names at their addresses of the moment."""
    return Client(Trust(papers.authority, addresses))


@asynccontextmanager
async def running(
    papers: Papers, defect: str = "", *, as_peer: bool = True, owner: bool = True
) -> AsyncIterator[Probe]:
    """The judge's probe, pointed at a node with this defect; it waits for nothing that takes long."""
    addresses: dict[str, tuple[str, int]] = {}
    peer, lookup, client = Peer(AGENT), lookup_client(papers, addresses), lookup_client(papers, addresses)
    node = HonestNode(NODE, lookup, defect)
    try:
        addresses[NODE] = await node.listener.start("127.0.0.1", 0, papers.served())
        addresses[JUDGE] = await peer.start("127.0.0.1", 0, papers.served())
        yield Probe(
            f"https://{NODE}",
            client,
            peer=peer if as_peer else None,
            owner_key=OWNER_KEY if owner else None,
            sleep=_no_sleep,
        )
    finally:
        await client.close()
        await lookup.close()
        await node.listener.close()
        await peer.close()

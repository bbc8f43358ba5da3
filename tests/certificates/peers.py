"""Servers and callers on loopback: an echo behind the TLS of replicas and of the planner, and the replica's own
server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NoReturn

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.waiting import BOUND
from tidemark_operator.certificates.issue import KeyPair
from tidemark_protocol.messages.responses import Description
from tidemark_protocol.pb import compute_pb2, compute_pb2_grpc
from tidemark_protocol.tls.folder import CertificateFolder, Material
from tidemark_protocol.tls.identities import OPERATOR, Identity
from tidemark_protocol.tls.server import RequireCaller, server_credentials
from tidemark_protocol.wire.describe import description_from_proto
from tidemark_replica.events.mailbox import Mailbox
from tidemark_replica.server.epoch_gate import EpochGate
from tidemark_replica.server.server import ComputeService, start_server

INCARNATION = "here"


def _not_written(*_: object) -> NoReturn:
    raise AssertionError("nothing is written here")


@contextmanager
def replica(address: str, tls: CertificateFolder | None) -> Iterator[None]:
    """The replica's server, which describes a replica that has nothing."""
    described = Description(INCARNATION, None, 0, (), (), ())
    service = ComputeService(
        EpochGate(),
        Mailbox(),
        lambda _: described,
        lambda _, __: (),
        lambda _: ((), 0),
        lambda _, __: b"",
        _not_written,
        lambda _: compute_pb2.ListShardsResponse(),
        lambda _: None,
    )
    server = start_server(service, address, tls)
    try:
        yield
    finally:
        server.stop(0).wait()


async def described(channel: grpc.aio.Channel) -> str:
    """The incarnation that answers; raises grpc.RpcError."""
    stub = compute_pb2_grpc.ComputeStub(channel)  # type: ignore[no-untyped-call]
    answer = await stub.Describe(compute_pb2.DescribeRequest(), timeout=BOUND)
    return description_from_proto(answer).incarnation


@contextmanager
def echo(address: str, folder: CertificateFolder) -> Iterator[int]:
    """All four kinds of calls, each answering what it hears; the port."""
    handlers = {
        "UnaryUnary": grpc.unary_unary_rpc_method_handler(lambda responses, _: responses),
        "UnaryStream": grpc.unary_stream_rpc_method_handler(lambda responses, _: iter([responses])),
        "StreamUnary": grpc.stream_unary_rpc_method_handler(lambda responses, _: b"".join(responses)),
        "StreamStream": grpc.stream_stream_rpc_method_handler(lambda responses, _: responses),
    }
    server = grpc.server(ThreadPoolExecutor(4), interceptors=[RequireCaller(OPERATOR)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", handlers),))
    port: int = server.add_secure_port(address, server_credentials(folder))
    server.start()
    try:
        yield port
    finally:
        server.stop(0).wait()


def showing(found: Material | None, peer: Identity, address: str) -> grpc.aio.Channel:
    """A channel that shows this certificate, or none; None: one without TLS."""
    if found is None:
        return grpc.aio.insecure_channel(address)
    pair = (found.key, found.certificate) if found.certificate else (None, None)
    credentials = grpc.ssl_channel_credentials(found.authorities, *pair)
    return grpc.aio.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", peer.host)])


def showing_blocking(found: Material, peer: Identity, address: str) -> grpc.Channel:
    """The same with threads: a stream that is refused while it sends tells why, which asyncio's may not."""
    credentials = grpc.ssl_channel_credentials(found.authorities, found.key, found.certificate)
    return grpc.secure_channel(address, credentials, options=[("grpc.ssl_target_name_override", peer.host)])


def calling(signer: KeyPair, uris: tuple[str, ...], now: datetime) -> KeyPair:
    """A certificate for calling under any names, which the operator would never sign."""
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris] or [x509.DNSName("x")]
    issuer = x509.load_pem_x509_certificate(signer.certificate)
    signing = serialization.load_pem_private_key(signer.key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    built = (
        x509.CertificateBuilder(issuer.subject, x509.Name([]), key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    encoding, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return KeyPair(built.public_bytes(encoding), key.private_bytes(encoding, kind, serialization.NoEncryption()))


def run(scenario: Any) -> Any:
    """To its end, within the bound."""

    async def bounded() -> Any:
        async with asyncio.timeout(BOUND):
            return await scenario

    return asyncio.run(bounded())

"""A replica accepts calls of the operator alone, and the operator answers of that replica alone: real handshakes."""

from __future__ import annotations

import socket
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from tests.certificates.peers import INCARNATION, calling, described, echo, replica, run, showing, showing_blocking
from tests.certificates.samples import DAY_MS, R1, R2, material, written
from tests.waiting import BOUND
from tidemark_operator.certificates.channel_factory import TlsChannels
from tidemark_operator.certificates.issue import new_authority
from tidemark_protocol.tls.folder import Material
from tidemark_protocol.tls.identities import OPERATOR, PLANNER, replica_identity

# handshakes are judged by the machine's clock
NOW_MS = int(time.time() * 1000)
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
OURS, FOREIGN = new_authority(NOW_MS), new_authority(NOW_MS)
NONE = b""


def forged(*uris: str) -> Material:
    pair = calling(OURS, uris, NOW)
    return Material(pair.certificate, pair.key, OURS.certificate)


CALLERS: dict[str, tuple[Material | None, str]] = {
    "the operator": (material(OURS, OPERATOR, NOW_MS), ""),
    "the operator, renewed": (material(OURS, OPERATOR, NOW_MS - 29 * DAY_MS), ""),
    "an operator whose certificate expired": (material(OURS, OPERATOR, NOW_MS - 31 * DAY_MS), "UNAVAILABLE"),
    "an operator whose certificate is not valid yet": (material(OURS, OPERATOR, NOW_MS + DAY_MS), "UNAVAILABLE"),
    "the operator of another authority": (material(FOREIGN, OPERATOR, NOW_MS, OURS.certificate), "UNAVAILABLE"),
    "the replica itself": (material(OURS, R1, NOW_MS), "UNAVAILABLE"),
    "another replica": (material(OURS, R2, NOW_MS), "UNAVAILABLE"),
    "the planner": (material(OURS, PLANNER, NOW_MS), "UNAVAILABLE"),
    "nobody, with TLS": (Material(NONE, NONE, OURS.certificate), "UNAVAILABLE"),
    "plain text": (None, "UNAVAILABLE"),
    "a replica that could call": (forged(R2.uri), "PERMISSION_DENIED"),
    "one without a name": (forged(), "PERMISSION_DENIED"),
    "one with the operator's name and another": (forged(OPERATOR.uri, R2.uri), "PERMISSION_DENIED"),
    "one with a longer name": (forged(OPERATOR.uri + "/x"), "PERMISSION_DENIED"),
    "the operator's name in capitals": (forged("tidemark://OPERATOR"), "PERMISSION_DENIED"),
}


@pytest.mark.parametrize("case", CALLERS)
def test_a_replica_is_called_by_the_operator_alone(case: str, tmp_path: Path) -> None:
    """Whoever else calls gets nothing, whatever certificate it shows."""
    shown, refused = CALLERS[case]
    address = f"unix://{tmp_path}/s"

    async def call() -> str:
        async with showing(shown, R1, address) as channel:
            try:
                return await described(channel)
            except grpc.aio.AioRpcError as error:
                return str(error.code().name)

    with replica(address, written(tmp_path / "tls", material(OURS, R1, NOW_MS))):
        assert run(call()) == (refused or INCARNATION)


@pytest.mark.parametrize("kind", ["unary_unary", "unary_stream", "stream_unary", "stream_stream"])
def test_every_kind_of_call_is_guarded(kind: str, tmp_path: Path) -> None:
    """A handshake that succeeds is not enough for any."""
    address = f"unix://{tmp_path}/s"
    method = "/Echo/" + kind.title().replace("_", "")

    def ask(shown: Material) -> bytes:
        with showing_blocking(shown, R1, address) as channel:
            answer = getattr(channel, kind)(method)(iter([b"x"]) if kind.startswith("stream") else b"x", timeout=BOUND)
            return bytes(answer) if kind.endswith("unary") else b"".join(answer)

    with echo(address, written(tmp_path / "tls", material(OURS, R1, NOW_MS))):
        assert ask(material(OURS, OPERATOR, NOW_MS)) == b"x"
        with pytest.raises(
            grpc.RpcError, match=r"only the operator may call this service, and the caller is tidemark://replica"
        ):
            ask(forged(R2.uri))


ANSWERS: dict[str, tuple[Material | None, str]] = {
    "the replica": (material(OURS, R1, NOW_MS), ""),
    "another replica": (
        material(OURS, R2, NOW_MS),
        "replica team-a/r1 (1111) presented a certificate for replica team-a/r2 (2222)",
    ),
    "an earlier replica of this name": (
        material(OURS, replica_identity("team-a", "r1", "0000"), NOW_MS),
        "replica team-a/r1 (1111) presented a certificate for replica team-a/r1 (0000)",
    ),
    "one of this name in another namespace": (
        material(OURS, replica_identity("team-b", "r1", "1111"), NOW_MS),
        "replica team-a/r1 (1111) presented a certificate for replica team-b/r1 (1111)",
    ),
    "the planner": (material(OURS, PLANNER, NOW_MS), "presented a certificate for the planner"),
    "what calls": (material(OURS, OPERATOR, NOW_MS), "not trusted: "),
    "one of another authority": (material(FOREIGN, R1, NOW_MS, OURS.certificate), "not trusted: "),
    "one that expired": (material(OURS, R1, NOW_MS - 31 * DAY_MS), "not trusted: certificate has expired"),
    "plain text": (None, "does not complete a TLS handshake"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_the_operator_takes_the_replica_alone_and_names_the_peer(case: str, tmp_path: Path) -> None:
    """An address is no proof: not of the replica, and not of its ComputeReplica's uid."""
    shown, wrong = ANSWERS[case]
    address = f"unix://{tmp_path}/s"
    dialer = TlsChannels(R1, lambda: material(OURS, OPERATOR, NOW_MS))

    async def call() -> str:
        async with dialer.channel(address, ()) as channel:
            try:
                return await described(channel)
            except grpc.aio.AioRpcError:
                return await dialer.explain(address)

    with replica(address, None if shown is None else written(tmp_path / "tls", shown)):
        answer = run(call())
        assert wrong in answer
        assert (answer == INCARNATION) == (not wrong)


def test_a_dead_address_is_no_certificate_error(tmp_path: Path) -> None:
    """A replica that starts is not there yet."""
    dialer = TlsChannels(R1, lambda: material(OURS, OPERATOR, NOW_MS))
    assert run(dialer.explain(f"unix://{tmp_path}/s")) == ""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert run(dialer.explain(f"127.0.0.1:{unused.getsockname()[1]}")) == ""


@pytest.mark.parametrize(
    ("version", "taken"),
    [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True), (ssl.TLSVersion.TLSv1_3, True)],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(version: ssl.TLSVersion, taken: bool, tmp_path: Path) -> None:
    """From 1.2 on, over a network address as in a cluster."""
    own = material(OURS, OPERATOR, NOW_MS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=own.authorities.decode())
    written(tmp_path / "own", own)
    context.load_cert_chain(tmp_path / "own/tls.crt", tmp_path / "own/tls.key")
    with (
        echo("127.0.0.1:0", written(tmp_path / "tls", material(OURS, R1, NOW_MS))) as port,
        socket.create_connection(("127.0.0.1", port)) as raw,
    ):
        if taken:
            assert context.wrap_socket(raw, server_hostname=R1.host).selected_alpn_protocol() == "h2"
        else:
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                context.wrap_socket(raw, server_hostname=R1.host)

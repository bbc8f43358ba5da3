"""Where no gateway answers: the command line says where it looked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.bounds import BOUND
from tidemark_cli import cluster, kubeconfig
from tidemark_cli.cluster import Leader
from tidemark_cli.errors import GatewayFailed
from tidemark_cli.gateway import Gateway, connected
from tidemark_protocol.pb import gateway_pb2 as pb

LEADER = Leader("tidemark-system", "tidemark-operator-0", 7443, b"")
SHOWN = kubeconfig.Certificate(b"", b"")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address where nobody listens; kubectl would forward it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        @contextmanager
        def forwarded(to: Leader) -> Iterator[str]:
            yield address

        monkeypatch.setattr(cluster, "forwarded", forwarded)
        yield address


def said(gateway: Gateway) -> str:
    """What the user reads."""
    with pytest.raises(GatewayFailed) as failed, connected(gateway) as stub:
        stub.Why(pb.WhyRequest(), timeout=BOUND)
    return str(failed.value)


def test_a_gateway_behind_a_forwarded_port_is_named_by_its_pod(nobody: str) -> None:
    """The port of this machine says nothing, and is gone by the time that somebody looks."""
    for gateway in (Gateway("", "t", leader=LEADER), Gateway("", None, certificate=SHOWN, leader=LEADER)):
        assert "no gateway answers at pod tidemark-system/tidemark-operator-0" in said(gateway)


def test_a_gateway_at_an_address_is_named_by_that(nobody: str) -> None:
    """As it was given, or found in a file."""
    assert f"no gateway answers at {nobody}: is the operator running?" in said(Gateway(nobody, "t"))

"""Where no gateway answers: the command line says where it looked."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.waiting import BOUND
from tidemark.errors import GatewayFailed, GatewayUnknown
from tidemark.gateway import port_forward
from tidemark.gateway.channel import connected
from tidemark.gateway.discovery import Gateway
from tidemark.gateway.kubectl import ClientCertificate, Kubectl
from tidemark.gateway.port_forward import TOKEN_PORT, Leader, find_leader
from tidemark.link import Link
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_protocol.pb import gateway_pb2 as pb

LEADER = Leader(Kubectl(), "tidemark-system", "tidemark-operator-0", 7443, b"")
SHOWN = ClientCertificate(b"", b"")


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address where nobody listens; kubectl would forward it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        @contextmanager
        def forwarded(to: Leader) -> Iterator[str]:
            yield address

        monkeypatch.setattr(port_forward, "forwarded", forwarded)
        yield address


def error_text(gateway: Gateway) -> str:
    """The text that the user reads."""
    with pytest.raises(GatewayFailed) as failed, connected(gateway) as stub:
        stub.Why(pb.WhyRequest(), timeout=BOUND)
    return str(failed.value)


def test_a_gateway_behind_a_forwarded_port_is_named_by_its_pod(nobody: str) -> None:
    """The port of this machine says nothing, and is gone by the time that somebody looks."""
    for gateway in (Gateway("", "t", leader=LEADER), Gateway("", None, certificate=SHOWN, leader=LEADER)):
        assert "no gateway answers at pod tidemark-system/tidemark-operator-0" in error_text(gateway)


def test_a_link_forwards_one_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls have the address that it has reached; another kubectl would forward another port."""
    begun = []

    @contextmanager
    def forwarded(to: Leader) -> Iterator[str]:
        begun.append(to)
        yield "127.0.0.1:1"

    monkeypatch.setattr(port_forward, "forwarded", forwarded)
    with closing(Link(lambda: Gateway("", "t", leader=LEADER))) as link:
        link.stub()
        assert link.gateway().address == "127.0.0.1:1"
    assert begun == [LEADER]


def test_a_gateway_at_an_address_is_named_by_that(nobody: str) -> None:
    """The address is named as it was given, or found in a file."""
    assert f"no gateway answers at {nobody}: is the operator running?" in error_text(Gateway(nobody, "t"))


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("who", "says"),
    [
        ("kubeconfig", "there is no EndpointSlice elsewhere/tidemark-gateway: .*Give --operator-namespace"),
        ("outsider_kubeconfig", "may not be read: .*takes Role tidemark-reach-gateway in elsewhere"),
        ("of nobody", "whether there is an EndpointSlice elsewhere/tidemark-gateway cannot be found out: .*refused"),
    ],
)
def test_an_error_of_the_cluster_has_its_remedy(
    who: str, says: str, control_plane: ControlPlane, nobody: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In one line, whatever kubectl has said before: there is none, one may not see it, or nobody answers."""
    away, config = tmp_path / "kubeconfig", yaml.safe_load(control_plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://{nobody}"
    away.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(getattr(control_plane, who, away)))
    monkeypatch.setenv("PATH", str(control_plane.layout.kubectl.parent), prepend=os.pathsep)

    with pytest.raises(GatewayUnknown, match=says) as failed:
        find_leader(Kubectl(), "elsewhere", TOKEN_PORT)
    assert "\n" not in str(failed.value)

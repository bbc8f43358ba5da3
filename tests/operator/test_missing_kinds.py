"""A kind that was deleted, and one that only seems so."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.handlers.harness import OperatorHarness
from tests.kube.fault_proxy import Asked, Fault, FaultProxy, fault_proxy
from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.errors import OperatorError
from tidemark_operator.handlers.reconcile.reconcile_loop import ReconcileLoop
from tidemark_operator.handlers.watch import list_kind
from tidemark_operator.kube.client import ApiError, Kube

pytestmark = [pytest.mark.cluster, pytest.mark.broad]


@pytest.fixture
def proxy(kinds_installed: ControlPlane) -> Iterator[FaultProxy]:
    with fault_proxy(kinds_installed.kubeconfig) as proxy:
        yield proxy


def listed(proxy: FaultProxy, folder: Path, namespace: str) -> None:
    """By an operator that only comes to the API server by this way."""

    async def scenario() -> None:
        harness = OperatorHarness()
        async with Kube.connect(proxy.kubeconfig(folder / "kubeconfig"), (namespace,)) as kube, asyncio.timeout(BOUND):
            harness.context.kube = kube
            await ReconcileLoop(harness.context, asyncio.Event())._resync()
        await harness.fleet.close()

    asyncio.run(scenario())


@pytest.fixture(autouse=True)
def _soon_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_kind, "CONFIRM_SECONDS", 0.0)


def of_dataflows(asked: Asked) -> bool:
    return asked.path.endswith("/dataflows")


def test_a_kind_that_an_api_server_twice_says_is_gone_ends_the_operator(
    proxy: FaultProxy, tmp_path: Path, namespace: str
) -> None:
    proxy.choose(lambda asked: Fault.NOWHERE if of_dataflows(asked) else None)
    with pytest.raises(OperatorError, match=r"dataflows\.compute\.tidemark\.dev is not installed") as raised:
        listed(proxy, tmp_path, namespace)
    assert not isinstance(raised.value, ApiError)


def test_crash_a_server_without_kinds_is_no_api_server(proxy: FaultProxy, tmp_path: Path, namespace: str) -> None:
    """A load balancer whose backends are all away says 404 to everything: the operator asks again later."""
    proxy.choose(lambda asked: Fault.NOWHERE)
    with pytest.raises(ApiError, match="404"):
        listed(proxy, tmp_path, namespace)


def test_crash_a_kind_that_is_back_a_moment_later_is_not_gone(
    proxy: FaultProxy, tmp_path: Path, namespace: str
) -> None:
    first = itertools.count()
    proxy.choose(lambda asked: Fault.NOWHERE if of_dataflows(asked) and next(first) == 0 else None)
    listed(proxy, tmp_path, namespace)
    assert len(proxy.met) == 1

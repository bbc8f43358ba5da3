"""The shape of a replica: the changes that need another process, and those that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.orchestrator.pods import LARGE, SETTINGS, SMALL
from tidemark_operator.orchestrator.interface import Owner, ReplicaSpec, replica_id, resource_of
from tidemark_operator.orchestrator.kubernetes.names import member, shape_of
from tidemark_operator.resources.manifest.pods import Executors, ScratchVolume, Volume
from tidemark_operator.resources.manifest.replica import UpdateStrategy


def test_agree_shapes_of_every_version() -> None:
    """Other digits here would start every replica anew with the operator's next version."""
    assert (shape_of(SMALL, SETTINGS), shape_of(LARGE, SETTINGS)) == ("2355f905", "4b8fbbee")


@pytest.mark.parametrize(
    "other",
    [
        replace(SMALL, cores=3),
        replace(SMALL, memory_bytes=3 << 30),
        replace(SMALL, pod=replace(SMALL.pod, executors=Executors(1))),
        replace(SMALL, pod=replace(SMALL.pod, scratch=ScratchVolume(30 << 30))),
        replace(SMALL, pod=replace(SMALL.pod, volumes=(Volume("c", "/data"),))),
        replace(SMALL, pod=replace(SMALL.pod, credentials="bucket")),
        replace(SMALL, pod=replace(SMALL.pod, source_secrets=("orders-db",))),
        replace(SMALL, pod=replace(SMALL.pod, iceberg="{}")),
        replace(SMALL, spark_only=True),
    ],
    ids=[
        "cores",
        "memory",
        "executors",
        "scratch",
        "volumes",
        "credentials",
        "source secrets",
        "iceberg",
        "spark only",
    ],
)
def test_the_shape_is_all_that_a_pod_has(other: ReplicaSpec) -> None:
    """Another one is another process."""
    assert shape_of(other, SETTINGS) != shape_of(SMALL, SETTINGS)


def test_how_it_changes_and_is_pulled_is_not() -> None:
    """Whoever edits these has lost nothing that was computed."""
    same = replace(SMALL, strategy=UpdateStrategy.RECREATE, instance=Owner("default", "another"))
    pulled = replace(SETTINGS, pull_policy="Always", pull_secrets=("s",), driver_account="other")

    assert shape_of(same, pulled) == shape_of(SMALL, SETTINGS)
    assert shape_of(SMALL, replace(SETTINGS, image="other")) != shape_of(SMALL, SETTINGS)
    traced = replace(SETTINGS, tracing=(("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"),))
    assert shape_of(SMALL, traced) != shape_of(SMALL, SETTINGS)
    assert shape_of(LARGE, replace(SETTINGS, driver_account="other")) != shape_of(LARGE, SETTINGS)


def test_names_fit_where_kubernetes_puts_them() -> None:
    """A StatefulSet's pods carry its name and ten digits in a label of 63 characters."""
    longest = member(replace(SMALL, name="r" * 40), SETTINGS)

    assert len(longest.name) + 11 <= 63
    assert resource_of(replica_id("r" * 40, longest.shape)) == ("r" * 40, longest.shape)
    assert resource_of(replica_id("r1", "")) == ("r1", "")

"""Pod settings in a ComputeReplica, and which of them a process can have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.resources.manifests import body
from tidemark_operator.handlers.replica_specs import replica_spec
from tidemark_operator.orchestrator.interface import Owner, PodSpec
from tidemark_operator.orchestrator.local.orchestrator import ProcessOrchestrator, replica_command
from tidemark_operator.resources.manifest.instance import ComputeInstance
from tidemark_operator.resources.manifest.pods import Executors, Requests, ScratchVolume, Volume
from tidemark_operator.resources.manifest.replica import ComputeReplica, UpdateStrategy
from tidemark_replica.options import parse

STORAGE = {"location": "s3://data/x", "secretName": "bucket"}
INSTANCE = ComputeInstance.parse(body("ComputeInstance", {"storage": STORAGE}))
FULL = {
    "resources": {"limits": {"cpu": 4, "memory": "8Gi"}, "requests": {"cpu": "500m", "memory": "4Gi"}},
    "executors": {"instances": 2, "resources": {"limits": {"memory": "6Gi"}, "requests": {"cpu": "1"}}},
    "scratch": {"size": "40Gi", "claimName": "scratch"},
    "volumes": [{"claimName": "landing", "mountPath": "/landing", "readOnly": True}],
    "updateStrategy": "Recreate",
}


def replica(spec: dict[str, Any]) -> ComputeReplica:
    return ComputeReplica.parse(body("ComputeReplica", {"instance": "default", **spec}))


def test_pod_settings_reach_the_orchestrator() -> None:
    """And what is not has its defaults."""
    full, least = replica_spec(replica(FULL), INSTANCE), replica_spec(replica({}), INSTANCE)

    assert full.pod == PodSpec(
        Requests("500m", "4Gi"),
        Executors(2, 2, 6 << 30, Requests("1")),
        ScratchVolume(40 << 30, "scratch"),
        (Volume("landing", "/landing", True),),
        "bucket",
    )
    assert full.strategy is UpdateStrategy.RECREATE
    assert full.instance == Owner(INSTANCE.name, INSTANCE.meta.uid)
    assert (least.pod, least.strategy) == (PodSpec(credentials="bucket"), None)


def test_secrets_of_sources_reach_the_orchestrator_in_one_order() -> None:
    """Another order of the list is no other shape; without the instance there are none."""
    lists = (["orders-db", "brokers"], ["brokers", "orders-db"])
    specs = [ComputeInstance.parse(body("ComputeInstance", {"storage": STORAGE, "sourceSecrets": s})) for s in lists]

    assert [replica_spec(replica({}), each).pod for each in specs] == [
        PodSpec(credentials="bucket", source_secrets=("brokers", "orders-db"))
    ] * 2
    assert replica_spec(replica({}), None).pod.source_secrets == ()


def test_spark_only_reaches_the_program(tmp_path: Path) -> None:
    """The program's own command line has it, and nothing where nothing is asked for: another text would be another
    shape."""
    spec = replica_spec(replica({"sparkOnly": True}), INSTANCE)
    command = replica_command(spec, "unix:///s", tmp_path)
    options = parse([*command[command.index("tidemark_replica") + 1 :]])

    assert (options.arrow, options.step_workers) == (False, 0)
    assert replica_spec(replica({}), INSTANCE).engine == ()


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (FULL, "spec.executors, spec.scratch.claimName, spec.volumes"),
        ({"updateStrategy": "Surge"}, "spec.updateStrategy: Surge"),
    ],
)
def test_a_process_is_refused_the_fields_of_pods(spec: dict[str, Any], named: str, tmp_path: Any) -> None:
    """Nothing is accepted and ignored."""
    refusal = ProcessOrchestrator(tmp_path, {}, planner=False).refusal(replica_spec(replica(spec), INSTANCE))

    assert refusal is not None
    assert named in refusal


def test_a_process_is_given_the_fields_of_processes(tmp_path: Any) -> None:
    """Cores, memory, and to be recreated."""
    plain = INSTANCE
    spec = {"resources": {"limits": {"cpu": 1}}, "updateStrategy": "Recreate", "executors": {"instances": 0}}

    assert ProcessOrchestrator(tmp_path, {}, planner=False).refusal(replica_spec(replica(spec), plain)) is None

"""The operator's ReconcileContext for tests: resources in the cache, and replicas whose addresses nobody listens on."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

from tests.controller.recording_listener import Heard
from tests.resources.manifests import body
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.handlers.reconcile.instance import align_replicas, prepare_instance
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Cache, key_of
from tidemark_operator.kube.client import INSTANCES, REPLICAS
from tidemark_operator.kube.leadership import Leadership
from tidemark_operator.kube.revisions import Revisions
from tidemark_operator.orchestrator.interface import Observation, Phase, ReplicaSpec

READABLE, UNREADABLE = {"storage": {"location": "/data"}}, {"storage": {"location": "a scheme of tomorrow"}}
ONE, ANOTHER = {"instance": "default"}, {"instance": "default", "updateStrategy": "Tomorrow"}


class RecordingOrchestrator:
    """An orchestrator whose replicas listen where nobody answers. `kept`: what it was told to retain last; `refused`:
    names of replicas that it cannot run; `phases`: of processes by the uid of their ComputeReplica, RUNNING unless
    set."""

    def __init__(self) -> None:
        self.kept: set[str] = set()
        self.refused: set[str] = set()
        self.phases: dict[str, Phase] = {}

    def refusal(self, replica: ReplicaSpec) -> str | None:
        return "it cannot" if replica.name in self.refused else None

    def ensure(self, replica: ReplicaSpec) -> None: ...

    def retain(self, keys: Collection[str]) -> None:
        self.kept = set(keys)

    def observe(self, key: str) -> tuple[Observation, ...]:
        phase = self.phases.get(key, Phase.RUNNING)
        return (Observation(phase, "unix:///nowhere/at/all"),) if key in self.kept else ()


class OperatorHarness:
    """A ReconcileContext with one ComputeInstance, `default`, and one ComputeReplica, `r1`."""

    def __init__(self) -> None:
        leadership = Leadership(cast(Any, None), "ns", "me")
        self.cache, self.orchestrator, self.fleet, self.writes = Cache(), RecordingOrchestrator(), Fleet(leadership), 0
        self.fleet.listener = cast(Any, Heard())
        none = cast(Any, None)
        orchestrator = cast(Any, self.orchestrator)
        revisions = Revisions(none)
        revisions._owners = set()  # all were listed, and there are none
        self.context = ReconcileContext(
            none, self.cache, Registry(), self.fleet, orchestrator, none, revisions, none, leadership
        )

    def put(self, instance: dict[str, Any] | None, replica: dict[str, Any] | None, **metadata: Any) -> None:
        """Put the objects as they stand now; None: deleted."""
        self.writes += 1
        described = [(INSTANCES, "ComputeInstance", "default", instance), (REPLICAS, "ComputeReplica", "r1", replica)]
        for resource, kind, name, spec in described:
            written = body(kind, spec or {}, name, uid=f"u-{name}", resourceVersion=str(self.writes), **metadata)
            key = key_of(resource, written)
            if spec is None:
                self.cache.remove(key)
            else:
                self.cache.put(key, written)
            if resource is INSTANCES:
                prepare_instance(self.context, key)
        align_replicas(self.context)

    @property
    def connected(self) -> list[str]:
        running = self.fleet.get("ns", "default")
        return [] if running is None else list(running.replicas)

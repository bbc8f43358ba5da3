"""The pods that a ComputeReplica asks for: requests, executors, scratch, volumes.

Only an orchestrator of pods can give these; the defaults ask for nothing. The schema says what is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.quantities import size_bytes


@dataclass(frozen=True, slots=True)
class Resources:
    """`cpu_request`, `memory_request`: empty where they are as much as the limits."""

    cores: int
    """Spark runs as many tasks at once."""
    memory_bytes: int
    cpu_request: str = ""
    memory_request: str = ""

    @classmethod
    def parse(cls, fields: Fields) -> Resources:
        limits, requests = fields.child("limits"), fields.child("requests")
        return cls(
            # manifests say 2 or "2"
            int(limits.values.get("cpu", 2)),
            size_bytes(limits, "memory", "2Gi"),
            requests.text("cpu", ""),
            requests.text("memory", ""),
        )


@dataclass(frozen=True, slots=True)
class Mount:
    claim: str
    path: str
    read_only: bool

    @classmethod
    def parse(cls, fields: Fields) -> Mount:
        return cls(fields.text("claimName"), fields.text("mountPath"), fields.flag("readOnly", False))


@dataclass(frozen=True, slots=True)
class PodFields:
    executors: int
    executor: Resources
    scratch_bytes: int
    scratch_claim: str
    volumes: tuple[Mount, ...]

    @classmethod
    def parse(cls, spec: Fields) -> PodFields:
        executors, scratch = spec.child("executors"), spec.child("scratch")
        return cls(
            executors=executors.integer("instances", 0),
            executor=Resources.parse(executors.child("resources")),
            scratch_bytes=size_bytes(scratch, "size", "20Gi"),
            scratch_claim=scratch.text("claimName", ""),
            volumes=tuple(Mount.parse(each) for each in spec.children("volumes")),
        )

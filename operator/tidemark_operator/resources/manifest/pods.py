"""The pods that a ComputeReplica asks for: requests, executors, scratch, volumes.

Only an orchestrator of pods can give these; the defaults ask for nothing. The schema says what is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.quantities import size_bytes


@dataclass(frozen=True)
class Requests:
    """Resource requests of a pod, as Kubernetes quantities. An empty field means: equal to the limit."""

    cpu: str = ""
    memory: str = ""


@dataclass(frozen=True)
class Resources:
    """Limits of a pod, and its requests. Spark runs `cores` tasks at once."""

    cores: int
    memory_bytes: int
    requests: Requests

    @classmethod
    def parse(cls, fields: Fields) -> Resources:
        limits, requests = fields.child("limits"), fields.child("requests")
        return cls(
            # manifests say 2 or "2"
            int(limits.values.get("cpu", 2)),
            size_bytes(limits, "memory", "2Gi"),
            Requests(requests.text("cpu", ""), requests.text("memory", "")),
        )


@dataclass(frozen=True)
class Executors:
    """Spark executors. `cores` and `memory_bytes` are per executor; the memory includes its Python workers."""

    instances: int = 0
    cores: int = 2
    memory_bytes: int = 2 << 30
    requests: Requests = Requests()

    @classmethod
    def parse(cls, fields: Fields) -> Executors:
        """Without executors the shape of a replica does not depend on their resources."""
        instances, of = fields.integer("instances", 0), Resources.parse(fields.child("resources"))
        return cls(instances, of.cores, of.memory_bytes, of.requests) if instances else cls()


@dataclass(frozen=True)
class ScratchVolume:
    """The volume of arrangements: an emptyDir of `bytes`, or the claim that driver and executors share."""

    bytes: int = 20 << 30
    claim: str = ""

    @classmethod
    def parse(cls, fields: Fields) -> ScratchVolume:
        return cls(size_bytes(fields, "size", "20Gi"), fields.text("claimName", ""))


@dataclass(frozen=True)
class Volume:
    """A PersistentVolumeClaim that every pod of the replica mounts at `path`."""

    claim: str
    path: str
    read_only: bool = False

    @classmethod
    def parse(cls, fields: Fields) -> Volume:
        return cls(fields.text("claimName"), fields.text("mountPath"), fields.flag("readOnly", False))

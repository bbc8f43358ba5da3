"""ComputeReplica: one Spark application that runs every dataflow of its instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemark_operator.resources.manifest.meta import InstanceName, Meta, spec_of
from tidemark_operator.resources.manifest.pods import Executors, Resources, ScratchVolume, Volume

KIND = "ComputeReplica"
PLURAL = "computereplicas"


class UpdateStrategy(Enum):
    """The way to a new shape of the process; by default the orchestrator chooses it."""

    SURGE = "Surge"
    """The new one hydrates beside the old one, and then takes its place."""
    RECREATE = "Recreate"
    """The old one ends before the new one starts."""


@dataclass(frozen=True, slots=True)
class ComputeReplica:
    meta: Meta
    instance: InstanceName
    resources: Resources
    """Limits of the Spark driver with its Python workers. A change of these, or of the next three, needs another
    process."""
    executors: Executors
    scratch: ScratchVolume
    volumes: tuple[Volume, ...]
    strategy: UpdateStrategy | None
    spark_only: bool
    """Nothing is computed outside Catalyst and Spark jobs; a change needs another process."""
    suspend: bool

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ComputeReplica:
        spec = spec_of(body)
        return cls(
            meta=Meta.parse(body),
            instance=InstanceName(spec.text("instance")),
            resources=Resources.parse(spec.child("resources")),
            executors=Executors.parse(spec.child("executors")),
            scratch=ScratchVolume.parse(spec.child("scratch")),
            volumes=tuple(map(Volume.parse, spec.children("volumes"))),
            strategy=spec.choice("updateStrategy", UpdateStrategy) if spec.has("updateStrategy") else None,
            spark_only=spec.flag("sparkOnly", False),
            suspend=spec.flag("suspend", False),
        )

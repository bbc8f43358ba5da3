"""ComputeReplica: one Spark application that runs every dataflow of its instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator.resources.errors import InvalidValue
from tidemark_operator.resources.fields import Fields
from tidemark_operator.resources.meta import InstanceName, Meta, spec_of
from tidemark_operator.resources.quantities import cores, memory_bytes

KIND = "ComputeReplica"
PLURAL = "computereplicas"

_MOST_NAME = 40


@dataclass(frozen=True, slots=True)
class Limits:
    """What the Spark driver, its Python workers included, may use."""

    cores: int
    """Spark runs as many tasks at once."""
    memory_bytes: int

    @classmethod
    def parse(cls, fields: Fields) -> Limits:
        return cls(cores(fields, "cpu", 2), memory_bytes(fields, "memory", "2Gi"))


@dataclass(frozen=True, slots=True)
class ComputeReplica:
    meta: Meta
    instance: InstanceName
    limits: Limits
    """A change needs another incarnation of the process."""
    suspend: bool

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ComputeReplica:
        meta, spec = Meta.parse(body), spec_of(body)
        if len(meta.name) > _MOST_NAME:
            raise InvalidValue("metadata.name", f"must be at most {_MOST_NAME} characters, not {len(meta.name)}")
        return cls(
            meta=meta,
            instance=InstanceName(spec.text("instance")),
            limits=Limits.parse(spec.child("resources").child("limits")),
            suspend=spec.flag("suspend", False),
        )

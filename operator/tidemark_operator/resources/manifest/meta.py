"""Metadata of all four kinds: identity, generation, deletion and finalizers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NewType

from tidemark_operator.resources.manifest.fields import Fields

GROUP = "compute.tidemark.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

RELEASE = f"{GROUP}/release"
"""An annotation of a Dataflow: any new value takes it out of quarantine."""
REPLAN = f"{GROUP}/replan"
"""An annotation of a Dataflow: any new value has it planned anew, with the row counts of now."""
_MAX_ANNOTATION_CHARACTERS = 1024
"""The characters of an annotation that count, at most: the status or a revision stores it."""

Namespace = NewType("Namespace", str)
Uid = NewType("Uid", str)
InstanceName = NewType("InstanceName", str)
"""The name of a ComputeInstance. The kinds that name one are in its namespace."""


@dataclass(frozen=True, slots=True)
class Meta:
    """An object's identity. `uid` tells it from an earlier or later one of the same name."""

    namespace: Namespace
    name: str
    uid: Uid
    generation: int
    """Counts the edits of `spec`; conditions carry it as `observedGeneration`."""
    resource_version: str
    deleting: bool
    finalizers: tuple[str, ...]

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Meta:
        fields = Fields(body, "").child("metadata")
        return cls(
            namespace=Namespace(fields.text("namespace")),
            name=fields.text("name"),
            uid=Uid(fields.text("uid")),
            generation=fields.integer("generation"),
            resource_version=fields.text("resourceVersion"),
            deleting=fields.has("deletionTimestamp"),
            finalizers=fields.texts("finalizers"),
        )


def annotation(body: Mapping[str, Any], name: str) -> str:
    """The annotation's value as it counts; empty where the object has none."""
    value: str = (body["metadata"].get("annotations") or {}).get(name, "")
    return value[:_MAX_ANNOTATION_CHARACTERS]


def spec_of(body: Mapping[str, Any]) -> Fields:
    return Fields(body, "").child("spec")

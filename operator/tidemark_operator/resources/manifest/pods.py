"""What a ComputeReplica says of its pods: requests, executors, scratch, volumes.

Only an orchestrator of pods can give these; the defaults ask for nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.quantities import cores, memory_bytes, size_bytes
from tidemark_protocol.forbidden_source_folders import FORBIDDEN_FOLDERS

MOST_EXECUTORS = 100
MOST_VOLUMES = 16
RESERVED = (*FORBIDDEN_FOLDERS, "/tmp", "/opt", "/usr")
_CPU = re.compile(r"[0-9]{1,6}m?")
_MEMORY = re.compile(r"[0-9]{1,8}(Mi|Gi|Ti)")
_PATH = re.compile(r"/[A-Za-z0-9._@+-]+(/[A-Za-z0-9._@+-]+)*")


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
            cores(limits, "cpu", 2),
            memory_bytes(limits, "memory", "2Gi"),
            _quantity(requests, "cpu", _CPU, "such as 500m or 2"),
            _quantity(requests, "memory", _MEMORY, "such as 512Mi or 2Gi"),
        )


@dataclass(frozen=True, slots=True)
class Mount:
    claim: str
    path: str
    read_only: bool

    @classmethod
    def parse(cls, fields: Fields) -> Mount:
        path = fields.text("mountPath")
        if not _PATH.fullmatch(path) or any(part in (".", "..") for part in path.split("/")):
            raise InvalidValue(fields.at("mountPath"), f"must be a plain absolute path, not {path!r:.100}")
        if any(path == taken or path.startswith(f"{taken}/") for taken in RESERVED):
            raise InvalidValue(fields.at("mountPath"), f"{path} is the pod's own; mount it elsewhere, such as /data")
        return cls(fields.text("claimName"), path, fields.flag("readOnly", False))


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
        instances = executors.integer("instances") if executors.has("instances") else 0
        if not 0 <= instances <= MOST_EXECUTORS:
            raise InvalidValue(executors.at("instances"), f"must be from 0 to {MOST_EXECUTORS}, not {instances}")
        claim = scratch.text("claimName", "")
        if instances and not claim:
            raise InvalidValue(
                scratch.at("claimName"),
                "executors read arrangements that others wrote: name a ReadWriteMany PersistentVolumeClaim",
            )
        mounts = tuple(Mount.parse(each) for each in spec.children("volumes"))
        if len(mounts) > MOST_VOLUMES:
            raise InvalidValue(spec.at("volumes"), f"must be at most {MOST_VOLUMES}, not {len(mounts)}")
        return cls(
            executors=instances,
            executor=Resources.parse(executors.child("resources")),
            scratch_bytes=size_bytes(scratch, "size", "20Gi", ("1Gi", "64Ti")),
            scratch_claim=claim,
            volumes=mounts,
        )


def _quantity(fields: Fields, name: str, pattern: re.Pattern[str], such_as: str) -> str:
    value = fields.values.get(name)
    text = "" if value is None else str(value)
    if text and (isinstance(value, bool) or not pattern.fullmatch(text)):
        raise InvalidValue(fields.at(name), f"must be an amount {such_as}, not {text!r:.40}")
    return text

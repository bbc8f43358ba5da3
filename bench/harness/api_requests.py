"""The requests of an API server, by its own count.

    apiserver_request_total{verb="PATCH",group="compute.tidemark.dev",resource="dataflows",subresource="status",...} 17

The count does not say by whom: what the servers of a control plane ask by themselves is counted before, and taken off.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.resources.manifest.meta import GROUP

_COUNT = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = ("PATCH", "PUT", "APPLY", "POST")


@dataclass(frozen=True)
class Asked:
    """A request: a verb and a resource."""

    verb: str
    resource: str

    @property
    def is_status_write(self) -> bool:
        return self.verb in _WRITES and self.resource.endswith(f".{GROUP}/status")


Requests = Mapping[Asked, float]


def requests(plane: ControlPlane) -> Requests:
    """All since the API server began, but for those about itself, such as its metrics."""
    return parsed(plane.kubectl("get", "--raw", "/metrics"))


def parsed(metrics: str) -> Requests:
    """From the text of its metrics."""
    found: Counter[Asked] = Counter()
    for labels, count in _COUNT.findall(metrics):
        of = dict(_LABEL.findall(labels))
        if of.get("resource"):
            below = f"/{of['subresource']}" if of.get("subresource") else ""
            found[Asked(of["verb"], f"{of['resource']}.{of.get('group', '')}{below}")] += round(float(count))
    return found


@dataclass(frozen=True)
class Rates:
    """Requests per second, or per counted object."""

    of: Mapping[Asked, float]

    @staticmethod
    def between(before: Requests, after: Requests, over: float) -> Rates:
        return Rates({asked: (after[asked] - before.get(asked, 0)) / over for asked in after})

    @property
    def status_writes(self) -> float:
        return sum(rate for asked, rate in self.of.items() if asked.is_status_write)

    def others(self, idle: Rates) -> float:
        """All requests but status writes and the constant background."""
        rates = ((rate, idle.of.get(asked, 0.0)) for asked, rate in self.of.items() if not asked.is_status_write)
        return sum(max(rate - anyway, 0.0) for rate, anyway in rates)

    def most(self, count: int) -> dict[str, float]:
        """The most frequent, for people."""
        ordered = sorted(self.of.items(), key=lambda each: -each[1])
        return {f"{asked.verb} {asked.resource}": round(rate, 3) for asked, rate in ordered[:count] if rate}

"""The system's writes to the API server, from the API server's own counters."""

from __future__ import annotations

import re
from collections import defaultdict

_LINE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_WRITES = {"POST", "PUT", "PATCH", "APPLY", "DELETE"}
_COUNTED = {"events", "controllerrevisions", "leases", "configmaps", "secrets"}


def measures(metrics: str) -> dict[str, float]:
    """Writes per kind since it started, and how many objects there are of kinds that could pile up."""
    found: defaultdict[str, float] = defaultdict(float)
    for line in metrics.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, labels, value = match[1], dict(_LABEL.findall(match[2])), float(match[3])
        if name == "apiserver_request_total" and labels["verb"] in _WRITES and labels["code"].startswith("2"):
            resource = "/".join(filter(None, (labels["resource"], labels["subresource"])))
            found[f"writes: {resource}"] += value
        elif name == "apiserver_resource_objects" and labels["resource"] in _COUNTED:
            found[f"objects: {labels['resource']}"] += value
    return dict(found)

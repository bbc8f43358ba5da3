"""kubectl as these tests use it: manifests are dicts, answers are parsed, refusals are KubectlFailed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_devcluster.control_plane.control_plane import ControlPlane


@dataclass(frozen=True)
class Kubectl:
    """The control plane, seen from one namespace."""

    plane: ControlPlane
    namespace: str

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """The text that kubectl prints."""
        return self.plane.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def create(self, manifest: Mapping[str, Any], dry_run: bool = False) -> dict[str, Any]:
        """The object as the API server took it."""
        return self._send("create", manifest, *(["--dry-run=server"] if dry_run else []))

    def replace(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """The whole object anew: a field that is not there is removed."""
        return self._send("replace", manifest)

    def set_status(self, manifest: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
        """The object after `status` was merged into its status subresource."""
        kind, name = str(manifest["kind"]), str(manifest["metadata"]["name"])
        patch = json.dumps({"status": status})
        answer = self.run("patch", kind, name, "--subresource=status", "--type=merge", "-p", patch, "-o", "json")
        return dict(json.loads(answer))

    def _send(self, verb: str, manifest: Mapping[str, Any], *options: str) -> dict[str, Any]:
        return dict(json.loads(self.run(verb, *options, "-f", "-", "-o", "json", stdin=json.dumps(manifest))))

"""The Secret of the object store changes under a replica, which goes on without a restart."""

from __future__ import annotations

import json

from tests.cluster.whole.pod_faults import Incarnations
from tests.cluster.whole.system import CREDENTIALS, System


def test_wrong_credentials_are_a_condition_that_goes_with_them(ready: System) -> None:
    """Mounted files follow the Secret, within the kubelet's time."""
    before = Incarnations.of(ready)
    _keep(ready, "x" * 40)
    message = ready.wait_condition("computeinstance", "default", "Ready", "False", "StorageAccessDenied")
    assert "AWS_ACCESS_KEY_ID" in message
    _keep(ready, ready.store.secret_key)
    ready.wait_condition("computeinstance", "default", "Ready")
    ready.wait_progress("revenue", "regions")
    assert Incarnations.of(ready) == before


def _keep(system: System, secret_key: str) -> None:
    changed = json.dumps({"stringData": {"AWS_SECRET_ACCESS_KEY": secret_key}})
    system.kubectl("patch", "secret", CREDENTIALS, "--type=merge", f"--patch={changed}")

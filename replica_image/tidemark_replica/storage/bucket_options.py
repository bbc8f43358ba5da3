"""The settings that a source opens its buckets with: those of the instance's storage, or credentials of its own.

    instance's storage     region, endpoint ... ──┐
    spec.endpoint          replaces the endpoint  ├──► options of a Storage, read anew at each use
    the source's Secret    keys, token, region ───┘

An address comes from the spec alone, where the operator checks it: an address in a Secret is refused.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable

from tidemark_persist.storage.mounted_settings import NEEDED, MountedSettings, Options, read_mounted
from tidemark_protocol.plan.ingestion import DeltaSource, FilesSource
from tidemark_replica.storage.source_secrets import SecretEntries, SecretUnusable

TOKEN, REGION = "AWS_SESSION_TOKEN", "AWS_REGION"
ENTRIES = (*NEEDED, TOKEN, REGION)
"""The entries of a Secret that are read."""
_REGION = re.compile(r"[a-z0-9-]{1,32}")
_ADDRESS = re.compile(r"AWS_.*ENDPOINT.*", re.IGNORECASE)


def bucket_options(source: FilesSource | DeltaSource, read: Callable[[str], SecretEntries]) -> Options:
    """The options of the source's buckets; None where they are the instance's. The function among them raises
    SecretUnusable, StorageError."""
    if not source.secret:
        return None

    def options() -> MountedSettings:
        settings = _instance_settings(source.endpoint) | _settings(source.secret, read(source.secret))
        return MountedSettings(hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest(), settings)

    return options


def _instance_settings(endpoint: str) -> dict[str, str]:
    """The settings of the instance's storage but for credentials; with an endpoint of the source's own that endpoint,
    and of the instance's settings the region alone."""
    instance = read_mounted().settings
    if not endpoint:
        return {name: value for name, value in instance.items() if name not in (*NEEDED, TOKEN)}
    region = {REGION: instance[REGION]} if REGION in instance else {}
    return region | {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": str(endpoint.startswith("http://")).lower()}


def _settings(secret: str, entries: SecretEntries) -> dict[str, str]:
    """The settings that the Secret's entries give. Raises SecretUnusable."""
    if address := next(filter(_ADDRESS.fullmatch, entries), None):
        raise SecretUnusable(
            f"entry {address} of Secret {secret} is not read: name the store in `endpoint` of the spec"
        )
    found = {name: entries[name] for name in NEEDED} | {name: entries[name] for name in ENTRIES if name in entries}
    if not _REGION.fullmatch(found.get(REGION, "us-east-1")):
        raise SecretUnusable(f"entry {REGION} of Secret {secret} is not a region such as eu-central-1")
    if TOKEN not in found and os.environ.get(TOKEN):
        raise SecretUnusable(
            f"Secret {secret} has no {TOKEN}, and the one of this replica's environment would be sent with its keys: "
            "give the instance its own credentials (storage.secretName)"
        )
    return found

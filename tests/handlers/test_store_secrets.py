"""Folders with credentials of object stores, which processes of this machine read."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any, cast

import pytest

from tests.resources.manifests import body
from tidemark_operator.certificates.files import FileStore
from tidemark_operator.handlers.reconcile.store_secrets import StoreSecrets
from tidemark_operator.kube.cache import Cache, key_of
from tidemark_operator.kube.client import INSTANCES, Body, Resource

NAMED = {"storage": {"location": "s3://bucket/tables", "secretName": "keys"}}


class Secrets:
    """An API server with one Secret, whatever it is called."""

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        given = {"AWS_ACCESS_KEY_ID": b"id", "AWS_SECRET_ACCESS_KEY": b"key"}
        return {"data": {entry: base64.b64encode(value).decode() for entry, value in given.items()}}


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        (NAMED, True),
        ({"storage": {"location": "a scheme of tomorrow", "secretName": "keys"}}, True),
        ({"storage": {"location": "/data"}}, False),
        (None, False),
    ],
    ids=["named", "unreadable", "not named", "deleted"],
)
def test_credentials_go_with_the_last_instance_that_names_them(
    tmp_path: Path, now: dict[str, Any] | None, kept: bool
) -> None:
    """Replicas of one that cannot be read go on, and still read them."""

    async def scenario() -> None:
        cache = Cache()
        secrets = StoreSecrets(cast(Any, Secrets()), cache, FileStore(tmp_path), {})
        for version, spec in enumerate((NAMED, now)):
            written = body("ComputeInstance", spec or {}, "default", uid="u", resourceVersion=str(version))
            if spec is None:
                cache.remove(key_of(INSTANCES, written))
            else:
                cache.put(key_of(INSTANCES, written), written)
            await secrets.sync()

    asyncio.run(scenario())
    assert [folder.name for folder in tmp_path.iterdir()] == (["ns.keys"] if kept else [])

"""Folders with Secrets for replicas that are processes: credentials of object stores, and those of sources."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import stat
from pathlib import Path
from typing import Any, cast

import pytest

from tests.resources.manifests import body
from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_operator.certificates.files import FolderStore
from tidemark_operator.handlers.reconcile.secret_copies import SecretCopies
from tidemark_operator.kube.cache import Cache, key_of
from tidemark_operator.kube.client import INSTANCES, ApiError, Body, Kube, Resource
from tidemark_operator.orchestrator.local.orchestrator import source_secrets_folder
from tidemark_replica.storage.source_secrets import SecretUnusable, SourceSecrets

NAMED = {"storage": {"location": "s3://bucket/tables", "secretName": "keys"}}
LISTED = {"storage": {"location": "/data"}, "sourceSecrets": ["brokers.tls", "orders-db"]}
UNREADABLE = {"storage": {"location": "a scheme of tomorrow", "secretName": "keys"}, "sourceSecrets": ["orders-db"]}
VERSIONS = itertools.count(1)


class Secrets:
    """An API server with every Secret that is asked for, all the same. `failing`: it answers with an error."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failing = False

    async def get(self, resource: Resource, namespace: str, name: str) -> Body:
        self.asked.append(name)
        if self.failing:
            raise ApiError(403, "forbidden")
        given = {"AWS_ACCESS_KEY_ID": b"id", "AWS_SECRET_ACCESS_KEY": b"key", "lock": b"an entry", "password": b"p"}
        return {"data": {entry: base64.b64encode(value).decode() for entry, value in given.items()}}


def put(cache: Cache, spec: dict[str, Any] | None, namespace: str = "ns") -> None:
    """ComputeInstance `default`; None: deleted."""
    written = body("ComputeInstance", spec or {}, "default", uid="u", resourceVersion=str(next(VERSIONS)))
    written["metadata"]["namespace"] = namespace
    if spec is None:
        cache.remove(key_of(INSTANCES, written))
    else:
        cache.put(key_of(INSTANCES, written), written)


def copies(kube: object, cache: Cache, folder: Path) -> SecretCopies:
    return SecretCopies(cast(Any, kube), cache, FolderStore(folder / "stores"), folder / "sources", {})


def folders(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("*/*") if path.is_dir())


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        (NAMED, ["stores/ns.keys"]),
        (UNREADABLE, ["stores/ns.keys"]),
        ({"storage": {"location": "/data"}}, []),
        (None, []),
    ],
    ids=["named", "unreadable", "not named", "deleted"],
)
def test_credentials_go_with_the_last_instance_that_names_them(
    tmp_path: Path, now: dict[str, Any] | None, kept: list[str]
) -> None:
    """Replicas of one that cannot be read go on, and still read them."""

    async def scenario() -> None:
        cache = Cache()
        secrets = copies(Secrets(), cache, tmp_path)
        for spec in (NAMED, now):
            put(cache, spec)
            await secrets.sync()

    asyncio.run(scenario())
    assert folders(tmp_path) == kept


@pytest.mark.parametrize(
    ("now", "kept"),
    [
        (LISTED, ["brokers.tls", "orders-db"]),
        ({**LISTED, "sourceSecrets": ["orders-db"]}, ["orders-db"]),
        (UNREADABLE, ["brokers.tls", "orders-db"]),
        ({"storage": {"location": "/data"}}, []),
        (None, []),
    ],
    ids=["listed", "one less", "unreadable", "not listed", "deleted"],
)
def test_secrets_of_sources_are_those_that_the_instance_lists_now(
    tmp_path: Path, now: dict[str, Any] | None, kept: list[str]
) -> None:
    """No other Secret is read, and this user alone can open the files."""
    api = Secrets()

    async def scenario() -> None:
        cache = Cache()
        secrets = copies(api, cache, tmp_path)
        for spec in (LISTED, now):
            put(cache, spec)
            await secrets.sync()

    asyncio.run(scenario())
    folder = source_secrets_folder(tmp_path / "sources", "ns", "default")
    assert sorted(path.name for path in folder.glob("*")) == kept
    assert set(api.asked) == {"brokers.tls", "orders-db"}
    for path in folder.rglob("*"):
        if not path.is_symlink():
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    for name in kept:
        assert SourceSecrets(folder).read(name)["lock"] == "an entry"


def test_copied_secrets_stay_while_the_api_server_refuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And the log says it once, not every second."""
    api = Secrets()

    async def scenario() -> None:
        cache = Cache()
        secrets = copies(api, cache, tmp_path)
        put(cache, {**LISTED, "sourceSecrets": ["orders-db"]})
        await secrets.sync()
        api.failing = True
        for _ in range(5):
            await secrets.sync()

    asyncio.run(scenario())
    folder = source_secrets_folder(tmp_path / "sources", "ns", "default")
    assert SourceSecrets(folder).read("orders-db")["password"] == "p"
    assert len([line for line in caplog.messages if "orders-db is not copied" in line]) == 1


@pytest.mark.cluster
def test_the_next_connection_reads_the_secret_that_kubectl_applied(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """It is created after the replica started, changed under it, and deleted: nothing is started anew."""
    secrets = SourceSecrets(source_secrets_folder(tmp_path / "sources", namespace, "default"))

    def kubectl(*arguments: str, stdin: str | None = None) -> None:
        control_plane.kubectl("-n", namespace, *arguments, stdin=stdin)

    async def follows(sync: SecretCopies) -> None:
        await sync.sync()
        with pytest.raises(SecretUnusable, match="Secret orders-db does not exist or is empty"):
            secrets.read("orders-db")

        kubectl("create", "secret", "generic", "orders-db", "--from-literal=password=first", "--from-literal=user=a")
        await sync.sync()
        assert secrets.read("orders-db") == {"password": "first", "user": "a"}

        rotated = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "orders-db"}}
        kubectl("replace", "-f", "-", stdin=json.dumps({**rotated, "stringData": {"password": "second"}}))
        await sync.sync()
        assert secrets.read("orders-db") == {"password": "second"}

        kubectl("delete", "secret", "orders-db")
        await sync.sync()
        with pytest.raises(SecretUnusable, match="Secret orders-db does not exist or is empty"):
            secrets.read("orders-db")

    async def scenario() -> None:
        cache = Cache()
        put(cache, {**LISTED, "sourceSecrets": ["orders-db"]}, namespace)
        async with Kube.connect(control_plane.kubeconfig, (namespace,)) as kube:
            await asyncio.wait_for(follows(copies(kube, cache, tmp_path)), BOUND)

    asyncio.run(scenario())

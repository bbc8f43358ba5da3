"""Secrets for local replicas: the operator copies them to folders of files, and replicas read changes.

    ComputeInstance storage.secretName ─► STATE/stores/<namespace>.<name>/                       AWS_* entries
                    sourceSecrets      ─► STATE/source-secrets/<namespace>.<instance>/<name>/    all entries

Only Secrets that an instance names are read, every SYNC_SECONDS; folders have mode 0700, files 0600. So new credentials
count without a restart, and no environment, command line or message has them. Pods mount the Secrets themselves, and
the operator does not read them.

If a Secret of a store is gone, its last files stay: replicas go on with them, and a condition reports it. A Secret of
a source that is gone has an empty folder, as the kubelet leaves it: to delete it is to revoke it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemark_operator.certificates.files import FolderStore
from tidemark_operator.certificates.store import SecretLocation
from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.cache import Cache
from tidemark_operator.kube.client import INSTANCES, SECRETS, ApiError, Body, Kube
from tidemark_operator.orchestrator.local.orchestrator import source_secrets_folder
from tidemark_operator.resources.conditions.instance import SecretProblem
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.instance import ComputeInstance

LOG = logging.getLogger(__name__)
SYNC_SECONDS = 5.0
RETRY_SECONDS = 1.0
"""The pause between tries while a Secret cannot be used."""
REQUIRED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
STORE_PREFIX = "AWS_"


class SecretCopies:
    """`problems`: Secrets of stores that cannot be used, by namespace and name; statuses show them. `source_secrets`:
    the folder that has a folder for each instance."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        stores: FolderStore,
        source_secrets: Path,
        problems: dict[tuple[str, str], SecretProblem],
    ) -> None:
        self._kube, self._cache, self._stores, self._problems = kube, cache, stores, problems
        self._source_secrets = source_secrets
        self._absent = False
        """Whether a Secret of a source could not be copied in the last round."""
        self._logged: dict[tuple[str, str], str] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self.sync()
            await asyncio.sleep(RETRY_SECONDS if self._problems or self._absent else SYNC_SECONDS)

    async def sync(self) -> None:
        """Updates all folders, and removes those that no instance names any more."""
        instances, all_read = self._instances()
        await self._sync_stores(instances, all_read)
        await self._sync_sources(instances, all_read)

    def _instances(self) -> tuple[list[ComputeInstance], bool]:
        """The instances, and whether every one could be parsed: replicas of one that cannot go on with the Secrets that
        it named before."""
        found, all_read = [], True
        for _, body in self._cache.all(INSTANCES):
            try:
                found.append(ComputeInstance.parse(body))
            except ResourceError:
                all_read = False
        return found, all_read

    async def _sync_stores(self, instances: Sequence[ComputeInstance], all_read: bool) -> None:
        named = {(each.meta.namespace, each.credentials) for each in instances if each.credentials}
        for key in self._problems.keys() - named:
            self._problems.pop(key)
        for namespace, name in sorted(named):
            problem = await self._copy_store(SecretLocation(name, namespace))
            if problem is None:
                self._problems.pop((namespace, name), None)
            else:
                self._problems[namespace, name] = problem
        if all_read:
            places = [SecretLocation(name, namespace) for namespace, name in named]
            await asyncio.to_thread(self._stores.retain, places)

    async def _copy_store(self, place: SecretLocation) -> SecretProblem | None:
        where = f"Secret {place.namespace}/{place.name}"
        try:
            body = await self._kube.get(SECRETS, place.namespace, place.name)
            if body is None:
                return SecretProblem("SecretNotFound", f"there is no {where}: make one with {' and '.join(REQUIRED)}")
            bag = {name: value for name, value in entries_of(body).items() if name.startswith(STORE_PREFIX)}
            if missing := [name for name in REQUIRED if not bag.get(name)]:
                return SecretProblem("SecretIncomplete", f"{where} has no {' and no '.join(missing)}: add it")
            await _write(self._stores, place, bag)
        except ApiError as error:
            reason = "SecretForbidden" if error.status == 403 else "SecretUnreadable"
            return SecretProblem(reason, f"{where} cannot be read by the operator: {error}")
        except OperatorError as error:
            LOG.warning("%s is not copied for replicas: %s", where, error)
            return SecretProblem("SecretUnreadable", f"{where} cannot be copied for replicas: {error}")
        return None

    async def _sync_sources(self, instances: Sequence[ComputeInstance], all_read: bool) -> None:
        self._absent, folders = False, set()
        named = {(each.meta.namespace, name) for each in instances for name in each.source_secrets}
        self._logged = {key: text for key, text in self._logged.items() if key in named}
        for instance in instances:
            if not instance.source_secrets:
                continue
            folder = source_secrets_folder(self._source_secrets, instance.meta.namespace, instance.meta.name)
            folders.add(folder)
            files = FolderStore(folder)
            for name in instance.source_secrets:
                copied = await self._copy_source(files, instance.meta.namespace, name)
                self._absent = self._absent or not copied
            places = [SecretLocation(name) for name in instance.source_secrets]
            await asyncio.to_thread(files.retain, places, "*")
        if all_read:
            await asyncio.to_thread(_retain, self._source_secrets, folders)

    async def _copy_source(self, files: FolderStore, namespace: str, name: str) -> bool:
        """Whether the Secret exists and its files are its present content. Where the API server does not answer, the
        last files stay."""
        try:
            body = await self._kube.get(SECRETS, namespace, name)
            await _write(files, SecretLocation(name), {} if body is None else entries_of(body))
        except (ApiError, OperatorError) as error:
            if self._logged.get((namespace, name)) != str(error):
                LOG.warning("Secret %s/%s is not copied for the sources of replicas: %s", namespace, name, error)
            self._logged[namespace, name] = str(error)
            return False
        self._logged.pop((namespace, name), None)
        return body is not None


async def _write(files: FolderStore, place: SecretLocation, bag: Mapping[str, bytes]) -> None:
    kept = await files.load(place)
    if kept is None or kept.bag != bag:
        await files.write(place, bag, kept)


def _retain(folder: Path, kept: set[Path]) -> None:
    """Removes every other folder below it."""
    for path in folder.glob("*"):
        if path not in kept:
            shutil.rmtree(path, ignore_errors=True)


def entries_of(secret: Body) -> dict[str, bytes]:
    """The entries of a Secret. Raises OperatorError if they are not base64."""
    try:
        return {name: base64.b64decode(value, validate=True) for name, value in (secret.get("data") or {}).items()}
    except (binascii.Error, ValueError):
        raise OperatorError("its data are not base64: create it with kubectl create secret generic") from None

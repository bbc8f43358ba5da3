"""Credentials of object stores for local replicas: Secrets are copied to folders of files.

    ComputeInstance storage.secretName ─► Secret, read every SYNC_SECONDS ─► STATE/stores/<namespace>.<name>/
                                                                             (0700, 0600) ─► replicas read changes

So new credentials count without a restart, and no environment, command line or message has them. Pods mount the Secret
themselves, and the operator does not read it. If a Secret is gone, its last files stay: replicas go on with them, and a
condition reports it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping

from tidemark_operator.certificates.files import FileStore
from tidemark_operator.certificates.store import SecretLocation
from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.cache import Cache
from tidemark_operator.kube.client import INSTANCES, SECRETS, ApiError, Body, Kube
from tidemark_operator.resources.conditions.instance import SecretProblem
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.instance import ComputeInstance

LOG = logging.getLogger(__name__)
SYNC_SECONDS = 5.0
RETRY_SECONDS = 1.0
"""While a Secret cannot be used."""
REQUIRED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class StoreSecrets:
    """`problems`: Secrets that cannot be used, by namespace and name; statuses show them."""

    def __init__(
        self, kube: Kube, cache: Cache, files: FileStore, problems: dict[tuple[str, str], SecretProblem]
    ) -> None:
        self._kube, self._cache, self._files, self._problems = kube, cache, files, problems

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.sync()
            await asyncio.sleep(RETRY_SECONDS if self._problems else SYNC_SECONDS)

    async def sync(self) -> None:
        """Updates all folders, and removes those that no instance names any more."""
        named, all_read = self._named()
        for key in self._problems.keys() - named:
            self._problems.pop(key)
        for namespace, name in sorted(named):
            problem = await self._copy(SecretLocation(name, namespace))
            if problem is None:
                self._problems.pop((namespace, name), None)
            else:
                self._problems[namespace, name] = problem
        if all_read:
            await asyncio.to_thread(self._files.retain, [SecretLocation(name, namespace) for namespace, name in named])

    def _named(self) -> tuple[set[tuple[str, str]], bool]:
        """The Secrets that instances name, and whether every instance could be parsed: replicas of one that cannot go
        on with the Secret that it named before."""
        found, all_read = set(), True
        for key, body in self._cache.all(INSTANCES):
            try:
                instance = ComputeInstance.parse(body)
            except ResourceError:
                all_read = False
                continue
            if instance.credentials:
                found.add((key.namespace, instance.credentials))
        return found, all_read

    async def _copy(self, place: SecretLocation) -> SecretProblem | None:
        where = f"Secret {place.namespace}/{place.name}"
        try:
            body = await self._kube.get(SECRETS, place.namespace, place.name)
            if body is None:
                return SecretProblem("SecretNotFound", f"there is no {where}: make one with {' and '.join(REQUIRED)}")
            bag = settings_of(body)
            if missing := [name for name in REQUIRED if not bag.get(name)]:
                return SecretProblem("SecretIncomplete", f"{where} has no {' and no '.join(missing)}: add it")
            await self._write(place, bag)
        except ApiError as error:
            reason = "SecretForbidden" if error.status == 403 else "SecretUnreadable"
            return SecretProblem(reason, f"{where} cannot be read by the operator: {error}")
        except OperatorError as error:
            LOG.warning("%s is not copied for replicas: %s", where, error)
            return SecretProblem("SecretUnreadable", f"{where} cannot be copied for replicas: {error}")
        return None

    async def _write(self, place: SecretLocation, bag: Mapping[str, bytes]) -> None:
        kept = await self._files.load(place)
        if kept is None:
            await self._files.create(place, bag)
        elif kept.bag != bag:
            await self._files.replace(place, bag, kept)


def settings_of(secret: Body) -> dict[str, bytes]:
    """The entries of a Secret that are settings of the store (AWS_...). Raises OperatorError if they are not base64."""
    try:
        return {
            name: base64.b64decode(value, validate=True)
            for name, value in (secret.get("data") or {}).items()
            if name.startswith("AWS_")
        }
    except (binascii.Error, ValueError):
        raise OperatorError("its data are not base64: create it with kubectl create secret generic") from None

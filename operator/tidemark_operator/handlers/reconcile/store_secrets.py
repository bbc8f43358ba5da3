"""Credentials of object stores, where replicas are processes of this machine: Secrets become folders of files.

    ComputeInstance storage.secretName ─► Secret, read every LOOK_SECONDS ─► STATE/stores/<namespace>.<name>/
                                                                             (0700, 0600) ─► replicas, when it changes

So new credentials count without a restart, and are in no environment, on no command line and in no message. Pods mount
the Secret themselves, and no operator reads it then. A Secret that is gone leaves the last files: replicas go on with
them, and a condition says so.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping

from tidemark_operator.certificates.files import FileStore
from tidemark_operator.certificates.store import Place
from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.cache import Cache
from tidemark_operator.kube.client import INSTANCES, ApiError, Body, Kube
from tidemark_operator.resources.conditions.instance import SecretTrouble
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.instance import ComputeInstance

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 5.0
AGAIN_SECONDS = 1.0
"""While one is of no use."""
NEEDED = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


class StoreSecrets:
    """`troubles`: by namespace and name of the Secret, for whoever writes statuses."""

    def __init__(
        self, kube: Kube, cache: Cache, files: FileStore, troubles: dict[tuple[str, str], SecretTrouble]
    ) -> None:
        self._kube, self._cache, self._files, self._troubles = kube, cache, files, troubles

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(AGAIN_SECONDS if self._troubles else LOOK_SECONDS)

    async def look(self) -> None:
        """Brings all folders up to date, and removes those that no instance names any more."""
        named, all_read = self._named()
        for key in self._troubles.keys() - named:
            self._troubles.pop(key)
        for namespace, name in sorted(named):
            trouble = await self._bring(Place(name, namespace))
            if trouble is None:
                self._troubles.pop((namespace, name), None)
            else:
                self._troubles[namespace, name] = trouble
        if all_read:
            await asyncio.to_thread(self._files.retain, [Place(name, namespace) for namespace, name in named])

    def _named(self) -> tuple[set[tuple[str, str]], bool]:
        """And whether these are all: replicas of an instance that cannot be read go on with what it named before."""
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

    async def _bring(self, place: Place) -> SecretTrouble | None:
        where = f"Secret {place.namespace}/{place.name}"
        try:
            body = await self._kube.get_secret(place.namespace, place.name)
            if body is None:
                return SecretTrouble("SecretNotFound", f"there is no {where}: make one with {' and '.join(NEEDED)}")
            bag = settings_of(body)
            if missing := [name for name in NEEDED if not bag.get(name)]:
                return SecretTrouble("SecretIncomplete", f"{where} has no {' and no '.join(missing)}: add it")
            await self._write(place, bag)
        except ApiError as error:
            reason = "SecretForbidden" if error.status == 403 else "SecretUnreadable"
            return SecretTrouble(reason, f"{where} cannot be read by the operator: {error}")
        except OperatorError as error:
            LOG.warning("the settings in %s are not written: %s", where, error)
            return SecretTrouble("SecretUnreadable", f"what {where} says cannot be written for replicas: {error}")
        return None

    async def _write(self, place: Place, bag: Mapping[str, bytes]) -> None:
        kept = await self._files.load(place)
        if kept is None:
            await self._files.create(place, bag)
        elif kept.bag != bag:
            await self._files.replace(place, bag, kept)


def settings_of(secret: Body) -> dict[str, bytes]:
    """Its entries that are settings of the store: what else is in it is not ours. Raises OperatorError."""
    try:
        return {
            name: base64.b64decode(value, validate=True)
            for name, value in (secret.get("data") or {}).items()
            if name.startswith("AWS_")
        }
    except (binascii.Error, ValueError):
        raise OperatorError("its data are not base64") from None

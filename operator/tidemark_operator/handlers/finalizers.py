"""Our finalizer: on objects that Dataflows read, and on objects whose tables or replication slots go with them.

It is set before a plan that reads the object is stored, so that an import cannot vanish in between.
"""

from __future__ import annotations

import asyncio

from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import ApiError, Conflict, Kube
from tidemark_operator.resources.manifest.meta import GROUP

FINALIZER = f"{GROUP}/in-use"
ATTEMPTS = 5


async def set_finalizer(kube: Kube, cache: Cache, key: Key, wanted: bool) -> bool:
    """Sets or removes the finalizer. Returns whether it is as wanted: a deleted object takes no new finalizer.

    Raises:
        Conflict: the object keeps changing.
        ApiError: any other error.
    """
    for attempt in range(ATTEMPTS):
        body = cache.get(key) if attempt == 0 else await kube.get(key.resource, key.namespace, key.name)
        if body is None:
            return not wanted
        metadata = body["metadata"]
        present = list(metadata.get("finalizers") or [])
        if (FINALIZER in present) is wanted:
            return True
        if wanted and "deletionTimestamp" in metadata:
            return False
        finalizers = [*present, FINALIZER] if wanted else [f for f in present if f != FINALIZER]
        patch = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": finalizers}}
        try:
            answer = await kube.patch(key.resource, key.namespace, key.name, patch)
            # a deleted object without finalizers is gone: its body must not come back into the cache
            if "deletionTimestamp" in metadata and not finalizers:
                cache.remove(key)
            else:
                cache.put(key, answer)
            return True
        except Conflict:
            await asyncio.sleep(0)
        except ApiError as error:
            if error.status == 404:
                return not wanted
            raise
    raise Conflict(409, f"{key} keeps changing")

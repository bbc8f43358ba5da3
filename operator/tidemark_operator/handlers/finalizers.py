"""Our finalizer: on what is imported, and on what is to take its tables along. Nowhere else, and no longer than needed.

Taken before a plan that reads the object is stored, so that there is no moment at which an import can vanish.
"""

from __future__ import annotations

import asyncio

from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import ApiError, Conflict, Kube
from tidemark_operator.resources.manifest.meta import GROUP

FINALIZER = f"{GROUP}/in-use"
ATTEMPTS = 5


async def set_finalizer(kube: Kube, cache: Cache, key: Key, wanted: bool) -> bool:
    """Puts it there or takes it away; whether it is as wanted. A deleted object takes no new finalizer."""
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
            # without its last finalizer a deleted object is gone: its body must not come back into the cache
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

"""All objects of a kind, as the API server has them now; or that there is no such kind any more."""

from __future__ import annotations

import asyncio

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import ApiError, Body, Kube, Resource

SURE_SECONDS = 3.0
"""Between two answers that say that there is no such kind: what stands before an API server may say so for a moment."""


async def list_kind(kube: Kube, resource: Resource) -> list[Body]:
    """Raises OperatorError where the kind is gone: an API server says so, twice."""
    try:
        return await kube.list(resource)
    except ApiError as error:
        if error.status != 404:
            raise
    await asyncio.sleep(SURE_SECONDS)
    await kube.version()
    try:
        return await kube.list(resource)
    except ApiError as error:
        if error.status != 404:
            raise
        name = f"{resource.plural}.{resource.group}"
        raise OperatorError(f"CustomResourceDefinition {name} is not installed: kubectl apply -f crds/") from None

"""Lists all objects of a kind, and finds out whether the kind is gone."""

from __future__ import annotations

import asyncio

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import ApiError, Body, Kube, Resource

CONFIRM_SECONDS = 3.0
"""The time between two answers that a kind does not exist: a proxy before the API server may give one for a moment."""


async def list_kind(kube: Kube, resource: Resource) -> list[Body]:
    """All objects of the kind.

    Raises:
        OperatorError: the API server answered twice that the kind does not exist.
        ApiError: any other error.
    """
    try:
        return await kube.list(resource)
    except ApiError as error:
        if error.status != 404:
            raise
    await asyncio.sleep(CONFIRM_SECONDS)
    await kube.check()
    try:
        return await kube.list(resource)
    except ApiError as error:
        if error.status != 404:
            raise
        name = f"{resource.plural}.{resource.group}"
        raise OperatorError(f"CustomResourceDefinition {name} is not installed: kubectl apply -f crds/") from None

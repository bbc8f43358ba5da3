"""The configured namespaces that the operator manages: those in which it has rights.

    start   a namespace that keeps being refused is left out, and logged
    run     access to a namespace is lost, or comes back ─► the operator ends, and is started anew

An operator with rights in some namespaces has a Role in each of them, which goes when the namespace is deleted. Then a
list of all objects would be refused, and nothing would be done in any namespace. The set changes only at a start: an
operator that knows half of a namespace's objects would stop what belongs to the other half.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import REPLICAS, ApiError, Kube

LOG = logging.getLogger(__name__)
CHECK_SECONDS = 10.0
RETRY_SECONDS = 2.0
TRIES = 4
"""An API server that has just started may refuse for a moment, until it has loaded all roles."""

REMEDY = (
    "Was it deleted? Take it out of the chart's watchNamespaces. "
    "Else create Role and RoleBinding tidemark-operator there"
)


async def begin(kube: Kube) -> None:
    """Restricts the client to the namespaces in which it has rights.

    Raises:
        OperatorError: it has rights in none.
    """
    configured = kube.namespaces
    if len(configured) < 2:
        return  # one namespace, or the whole cluster
    refused = frozenset(configured)
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(RETRY_SECONDS)
        with kube.patient():
            refused = frozenset([each for each in refused if await _is_refused(kube, each)])
        if not refused:
            return
    for namespace in sorted(refused):
        LOG.error("namespace %s is left out: the operator has no rights there. %s", namespace, REMEDY)
    if refused == frozenset(configured):
        raise OperatorError(f"the operator has no rights in any of the namespaces {', '.join(configured)}. {REMEDY}")
    kube.namespaces = tuple(namespace for namespace in configured if namespace not in refused)


async def stays(kube: Kube, configured: Sequence[str]) -> None:
    """Runs until cancelled. While the operator has rights in no namespace it goes on: a new start would not help.

    Raises:
        OperatorError: the namespaces in which it has rights are no longer those that the client is restricted to.
    """
    changes = dict.fromkeys(configured, 0)
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        allowed = await _allowed(kube, configured)
        for namespace, is_allowed in allowed.items():
            changes[namespace] = 0 if is_allowed == (namespace in kube.namespaces) else changes[namespace] + 1
        changed = next((namespace for namespace in configured if changes[namespace] >= TRIES), None)
        if changed is None or not any(allowed.values()):
            continue
        if changed in kube.namespaces:
            raise OperatorError(f"the operator has lost its rights in namespace {changed}: it starts anew without it")
        raise OperatorError(f"the operator has rights in namespace {changed} now: it starts anew with it")


async def _allowed(kube: Kube, configured: Sequence[str]) -> dict[str, bool]:
    """Whether it has rights, by namespace; without namespaces for which the API server could not tell."""
    allowed: dict[str, bool] = {}
    for namespace in configured:
        try:
            allowed[namespace] = not await _is_refused(kube, namespace)
        except ApiError as error:
            LOG.debug("rights in namespace %s are unknown: %s", namespace, error)
    return allowed


async def _is_refused(kube: Kube, namespace: str) -> bool:
    """Whether the API server refuses a list there. Raises ApiError for other errors."""
    try:
        await kube.list(REPLICAS, namespace=namespace)
    except ApiError as error:
        if error.status == 404:  # the kind is gone, which `list_kind` reports
            return False
        if error.status != 403:
            raise
        return True
    return False

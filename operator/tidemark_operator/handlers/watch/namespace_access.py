"""Which of the namespaces that it is told of an operator looks after: those that it may.

    start   one that is refused, again and again, is left out, and said       the others go on without it
    run     one is refused now that was not, or is not any more that was   ─► the operator begins anew

With rights in some namespaces alone, these are objects of each of them, and go when it is deleted. Then every list of
all would be refused, and nothing be done anywhere. What is there changes only with an operator that begins: one that
knows half of what is in a namespace would take the other half for what nobody wants.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import REPLICAS, ApiError, Kube

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 10.0
AGAIN_SECONDS = 2.0
TRIES = 4
"""An API server that has just begun may refuse for a moment: it does not know all roles yet."""

REMEDY = (
    "Was it deleted? Take it out of the chart's watchNamespaces; else see to Role and RoleBinding tidemark-operator"
)


async def begin(kube: Kube) -> None:
    """From here on the client asks for those namespaces alone that it may. Raises OperatorError where there is none."""
    told = kube.namespaces
    if len(told) < 2:
        return  # it is that one, or all of them
    refused = frozenset(told)
    for attempt in range(TRIES):
        if attempt:
            await asyncio.sleep(AGAIN_SECONDS)
        with kube.patient():
            refused = frozenset([each for each in refused if await _is_refused(kube, each)])
        if not refused:
            return
    for namespace in sorted(refused):
        LOG.error("namespace %s is not looked after: nothing is allowed there. %s", namespace, REMEDY)
    if refused == frozenset(told):
        raise OperatorError(f"none of the namespaces {', '.join(told)} may be looked after. {REMEDY}")
    kube.namespaces = tuple(namespace for namespace in told if namespace not in refused)


async def stays(kube: Kube, told: Sequence[str]) -> None:
    """Until cancelled; raises OperatorError once it is others than those that the client asks for. Where it may look
    after none, nothing is gained by that."""
    others = dict.fromkeys(told, 0)
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        allowed = await _allowed(kube, told)
        for namespace, is_allowed in allowed.items():
            others[namespace] = 0 if is_allowed == (namespace in kube.namespaces) else others[namespace] + 1
        changed = next((namespace for namespace in told if others[namespace] >= TRIES), None)
        if changed is None or not any(allowed.values()):
            continue
        if changed in kube.namespaces:
            raise OperatorError(f"nothing is allowed in namespace {changed} any more: the operator begins anew")
        raise OperatorError(f"namespace {changed} may be looked after now: the operator begins anew with it")


async def _allowed(kube: Kube, told: Sequence[str]) -> dict[str, bool]:
    """Of which it can be said."""
    allowed: dict[str, bool] = {}
    for namespace in told:
        try:
            allowed[namespace] = not await _is_refused(kube, namespace)
        except ApiError as error:
            LOG.debug("whether namespace %s may be looked after: %s", namespace, error)
    return allowed


async def _is_refused(kube: Kube, namespace: str) -> bool:
    """Raises ApiError where that cannot be said."""
    try:
        await kube.list(REPLICAS, namespace=namespace)
    except ApiError as error:
        if error.status == 404:  # there is no such kind: who lists all of it says so
            return False
        if error.status != 403:
            raise
        return True
    return False

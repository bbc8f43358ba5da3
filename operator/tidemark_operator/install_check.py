"""`python -m tidemark_operator.install_check`: whether an installation works, for `helm test`.

    an operator holds the Lease and renews it ─► the planner and the gateway accept a connection ─► exit status 0

A failure is one line on stderr, with exit status 1.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemark_operator.errors import OperatorError
from tidemark_operator.kube.client import LEASES, ApiError, Kube
from tidemark_operator.kube.leadership import LEASE
from tidemark_operator.kube.lease import holder_of, spec_of

LOOK_SECONDS = 1.0


class Broken(OperatorError):
    """A part of the installation does not work; the message names it."""


async def somebody_leads(kube: Kube, namespace: str) -> str:
    """The holder's identity, once it has renewed the Lease during the check. Runs until cancelled otherwise."""
    first = None
    while True:
        lease = await kube.get(LEASES, namespace, LEASE)
        holder = (holder_of(lease), spec_of(lease).get("renewTime"))
        if first is not None and holder[0] and holder != first:
            return holder[0]
        first = first or holder
        await asyncio.sleep(LOOK_SECONDS)


async def answers(address: str) -> None:
    """Wait until `address` (host:port) accepts a connection; nothing is sent. Runs until cancelled otherwise."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            await asyncio.sleep(LOOK_SECONDS)
        else:
            writer.close()
            return


async def check(kubeconfig: Path | None, namespace: str, endpoints: Mapping[str, str], seconds: float) -> str:
    """Check everything, each for at most `seconds`; return a summary.

    `endpoints`: names and addresses (host:port) that must accept a connection.

    Raises:
        Broken: a part does not work.
    """
    async with Kube.connect(kubeconfig) as kube:
        try:
            async with asyncio.timeout(seconds):
                leader = await somebody_leads(kube, namespace)
        except TimeoutError:
            raise Broken(
                f"no operator holds and renews Lease {namespace}/{LEASE}: see the operator pods' logs"
            ) from None
        except ApiError as error:
            raise Broken(f"Lease {namespace}/{LEASE} cannot be read: {error}") from None
    for what, address in endpoints.items():
        try:
            async with asyncio.timeout(seconds):
                await answers(address)
        except TimeoutError:
            raise Broken(f"the {what} does not accept connections at {address}: see its pods' logs") from None
    return f"{leader} leads; {' and '.join(f'the {what} at {address}' for what, address in endpoints.items())} answer"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tidemark_operator.install_check", description="Whether an installation works."
    )
    parser.add_argument(
        "--kubeconfig", type=Path, help="kubeconfig of the cluster (default: the pod's service account)"
    )
    parser.add_argument("--lease-namespace", required=True, help="namespace of the operators' Lease")
    parser.add_argument("--planner", required=True, help="host:port of the planner")
    parser.add_argument("--gateway", required=True, help="host:port of the gateway, the leader's")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="seconds to wait for each check (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    try:
        endpoints = {"planner": given.planner, "gateway": given.gateway}
        print(asyncio.run(check(given.kubeconfig, given.lease_namespace, endpoints, given.seconds)))
    except OperatorError as error:
        print(f"tidemark_operator.install_check: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

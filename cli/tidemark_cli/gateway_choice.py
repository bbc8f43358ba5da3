"""The choice of the gateway that a command calls, by the options that it was given."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from tidemark.gateway import discovery
from tidemark.gateway.discovery import Gateway
from tidemark.gateway.kubectl import Kubectl

PARAMETERS = frozenset(
    "namespace kubeconfig context operator_namespace server certificate_authority gateway_file service_account "
    "token_file client_certificate".split()
)
"""Parameters of the options that choose the gateway (options.py)."""


def locate(
    given: Mapping[str, Any], token_lifetime: str = discovery.TOKEN_LIFETIME
) -> tuple[Callable[[], Gateway], str]:
    """The way to the gateway that the options select, and the namespace. `given`: by parameters of PARAMETERS.

    Raises:
        click.UsageError: the options exclude each other.
        GatewayFailed: the kubeconfig has no such context.
    """
    chosen = {name: given.get(name) for name in PARAMETERS}
    _exclusive(**{name: chosen[name] for name in ("gateway_file", "server", "operator_namespace")})
    _exclusive(**{name: chosen[name] for name in ("service_account", "token_file", "client_certificate")})
    if chosen["certificate_authority"] and not chosen["server"]:
        raise click.UsageError("--certificate-authority belongs to --server: give both")
    kubectl = Kubectl(chosen["kubeconfig"], chosen["context"])
    namespace = chosen["namespace"] or kubectl.namespace()
    location = discovery.Location(
        chosen["gateway_file"],
        chosen["server"],
        chosen["certificate_authority"],
        chosen["operator_namespace"] or discovery.OPERATOR_NAMESPACE,
        kubectl,
    )
    credentials = discovery.Credentials(
        chosen["service_account"], namespace, chosen["token_file"], bool(chosen["client_certificate"]), token_lifetime
    )
    return partial(discovery.find, location, os.environ, credentials), namespace


def _exclusive(**values: object) -> None:
    """Raises click.UsageError where more than one of the options was given."""
    given = [f"--{name.replace('_', '-')}" for name, value in values.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other: give one of them")

"""Calls of kubectl, which reads the kubeconfig, selects the context and logs in."""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidemark.errors import GatewayFailed

AUDIENCE = "tidemark-gateway"
DEFAULT_NAMESPACE = "default"
TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class ClientCertificate:
    """A client certificate and its key, as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Kubectl:
    """kubectl with the flags that select a kubeconfig and a context."""

    kubeconfig: Path | None = None
    """None: $KUBECONFIG, or ~/.kube/config."""
    context: str | None = None
    """None: the kubeconfig's current context."""

    @property
    def kubeconfigs(self) -> list[Path]:
        """The files that kubectl merges."""
        if self.kubeconfig:
            return [self.kubeconfig]
        named = [Path(name) for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
        return named or [Path.home() / ".kube" / "config"]

    def command(self, *arguments: str) -> Sequence[str]:
        """The command line of a call."""
        kubeconfig = ["--kubeconfig", str(self.kubeconfig)] if self.kubeconfig else []
        context = ["--context", self.context] if self.context else []
        return ["kubectl", *arguments, *kubeconfig, *context]

    def run(self, purpose: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs kubectl to its end, whatever its exit status.

        Raises:
            GatewayFailed: kubectl is not on the PATH, or takes longer than TIMEOUT_SECONDS.
        """
        command = self.command(*arguments)
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        except FileNotFoundError:
            raise GatewayFailed(f"{purpose} needs kubectl, which is not on the PATH") from None
        except subprocess.TimeoutExpired:
            raise GatewayFailed(
                f"kubectl did not end within {TIMEOUT_SECONDS:.0f} s: does the API server answer?"
            ) from None

    def namespace(self) -> str:
        """The context's namespace, as kubectl uses it; `default` where the kubeconfig has none.

        Raises:
            GatewayFailed: the kubeconfig has no context of the name that was given.
        """
        if not any(file.exists() for file in self.kubeconfigs):
            return DEFAULT_NAMESPACE
        try:
            done = self.run("--context", "config", "view", "--minify", "--output", "jsonpath={..namespace}")
        except GatewayFailed:
            if self.context is None:
                return DEFAULT_NAMESPACE
            raise
        if done.returncode and self.context is not None:
            raise GatewayFailed(f"--context {self.context}: {_last_line(done.stderr)}")
        return done.stdout.strip() or DEFAULT_NAMESPACE

    def client_certificate(self) -> ClientCertificate:
        """The client certificate of the context's user.

        Raises:
            GatewayFailed: kubectl cannot read the kubeconfig, or the user has no client certificate.
        """
        arguments = ("config", "view", "--raw", "--flatten", "--minify", "--output", "json")
        done = self.run("--client-certificate", *arguments)
        if done.returncode:
            raise GatewayFailed(f"kubectl cannot read the kubeconfig: {done.stderr.strip()}")
        try:
            (named,) = json.loads(done.stdout)["users"]
            user = named["user"]
            return ClientCertificate(
                *(base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key"))
            )
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise GatewayFailed(
                "the kubeconfig's context has no client certificate: give --service-account NAME"
            ) from None

    def token(self, service_account: str, namespace: str, lifetime: str) -> str:
        """A new token of a ServiceAccount, for the gateway's audience only (a TokenRequest).

        Raises:
            GatewayFailed: the API server refuses the token.
        """
        arguments = ["create", "token", service_account, "--namespace", namespace]
        arguments += ["--audience", AUDIENCE, "--duration", lifetime]
        done = self.run("--service-account", *arguments)
        if done.returncode:
            raise GatewayFailed(f"no token for ServiceAccount {service_account}: {done.stderr.strip()}")
        return done.stdout.strip()


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2]

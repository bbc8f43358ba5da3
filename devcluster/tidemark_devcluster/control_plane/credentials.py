"""Credentials of the API server: two tokens, the key of service accounts, and the kubeconfigs.

All is made here from random bytes, so no `openssl` is needed. The service account key is an EC P-256 key: any
number below the curve's order is one, and its SEC 1 form has a fixed length.
"""

import base64
import csv
import io
import json
import secrets
import textwrap
from dataclasses import dataclass

P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
# ECPrivateKey (RFC 5915): SEQUENCE { 1, OCTET STRING of 32 bytes, [0] the curve's name }
SEC1_HEAD = bytes.fromhex("303102010104 20".replace(" ", ""))
SEC1_P256 = bytes.fromhex("a00a06082a8648ce3d030107")


@dataclass(frozen=True)
class Tokens:
    """The bearer tokens: the administrator has every right, the outsider is authenticated and has none."""

    administrator: str
    outsider: str

    @staticmethod
    def random() -> "Tokens":
        return Tokens(secrets.token_urlsafe(32), secrets.token_urlsafe(32))

    def as_csv(self) -> str:
        """The format of `--token-auth-file`."""
        return f'{self.administrator},administrator,administrator,"system:masters"\n{self.outsider},outsider,outsider\n'

    @staticmethod
    def from_csv(text: str) -> "Tokens":
        """The inverse of `as_csv`."""
        by_user = {row[1]: row[0] for row in csv.reader(io.StringIO(text)) if len(row) > 2}
        return Tokens(by_user["administrator"], by_user["outsider"])


def service_account_key() -> str:
    """A new EC P-256 private key, as PEM."""
    number = 1 + secrets.randbelow(P256_ORDER - 1)
    body = base64.b64encode(SEC1_HEAD + number.to_bytes(32, "big") + SEC1_P256).decode()
    return f"-----BEGIN EC PRIVATE KEY-----\n{textwrap.fill(body, 64)}\n-----END EC PRIVATE KEY-----\n"


def kubeconfig(server: str, certificate: str, user: str, token: str) -> str:
    """A kubeconfig that holds all it needs (JSON is YAML)."""
    authority = base64.b64encode(certificate.encode()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tidemark", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "tidemark", "context": {"cluster": "tidemark", "user": user}}],
        "current-context": "tidemark",
    }
    return json.dumps(document, indent=2) + "\n"

"""A login by password in the place of a token, as `tidemark-pgwire` sends it to the gateway with each call.

    authorization: Bearer login~BASE64URL(NAMESPACE, NUL, USER, NUL, PASSWORD)

No token of Kubernetes has a `~`, and no text of PostgreSQL's protocol a NUL.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field

_MARK = "login~"


@dataclass(frozen=True)
class PasswordLogin:
    """The user and the password are the client's words; `namespace` is where its ServiceAccount has to be."""

    namespace: str
    user: str
    password: str = field(repr=False)


def encode(login: PasswordLogin) -> str:
    """The login in the place of a token."""
    text = "\0".join((login.namespace, login.user, login.password))
    return _MARK + base64.urlsafe_b64encode(text.encode()).decode()


def is_login(token: str) -> bool:
    """Whether the text is meant as a login, well-formed or not: it may have a password, and is no token."""
    return token.startswith(_MARK)


def decode(token: str) -> PasswordLogin | None:
    """None: the token is none of a login."""
    if not is_login(token):
        return None
    try:
        parts = base64.b64decode(token.removeprefix(_MARK), b"-_", validate=True).decode().split("\0")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return PasswordLogin(*parts) if len(parts) == 3 else None

"""Servers that accept one caller: the holder of a certificate with its identity.

    handshake   an authority in ca.crt signed its certificate, which is valid now, for clients   (gRPC, TLS 1.2 or 1.3)
    each call   the URI of its certificate is `tidemark://operator`                               (RequireCaller)

The folder is read in every handshake, so a new certificate needs no restart. Open connections stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import grpc

from tidemark_protocol.errors import CertificateUnreadable
from tidemark_protocol.tls.folder import CertificateFolder, CertificateWatch, Material
from tidemark_protocol.tls.identities import Identity

LOG = logging.getLogger(__name__)
PEER_URI = "peer_uri"
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def server_credentials(folder: CertificateFolder) -> Any:
    """Credentials for `add_secure_port`; callers must show a certificate. Raises CertificateUnreadable."""
    watch = CertificateWatch(folder)

    def look() -> Any:
        try:
            found = watch.reload()
        except CertificateUnreadable as error:
            LOG.warning("the previous certificate stays in use: %s", error)
            return None
        if found is None:
            return None
        LOG.info("a new certificate of %s is in use", folder.path)
        return _configuration(found)

    return grpc.dynamic_ssl_server_credentials(_configuration(watch.current), look, True)


def _configuration(material: Material) -> Any:
    pair = (material.key, material.certificate)
    return grpc.ssl_server_certificate_configuration([pair], material.authorities)


class RequireCaller(grpc.ServerInterceptor):  # type: ignore[misc]
    """Refuses calls of every other identity with PERMISSION_DENIED, before it reads their messages."""

    def __init__(self, caller: Identity) -> None:
        self._caller = caller

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        handler = continuation(details)
        if handler is None:
            return None
        behaviours = {kind: getattr(handler, kind) for kind in _KINDS}
        return handler._replace(**{kind: self._guarded(b) for kind, b in behaviours.items() if b is not None})

    def _guarded(self, behaviour: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def guarded(request: Any, context: Any) -> Any:
            uris = context.auth_context().get(PEER_URI, ())
            if list(uris) != [self._caller.uri.encode()]:
                who = ", ".join(uri.decode(errors="replace") for uri in uris) or "a caller without an identity"
                context.abort(
                    grpc.StatusCode.PERMISSION_DENIED,
                    f"only {self._caller} may call this service, and the caller is {who}",
                )
            return behaviour(request, context)

        return guarded

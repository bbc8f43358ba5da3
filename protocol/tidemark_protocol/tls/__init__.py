"""TLS between the processes of Tidemark: identities in certificates, folders of certificates, and servers that accept
the
operator alone.

folder (tls.crt, tls.key, ca.crt) ──each handshake──► server credentials ──► RequireCaller(operator) ──► service

Reading order: `identities`, `folder`, `server`.
"""

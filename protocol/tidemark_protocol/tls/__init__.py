"""Who speaks to whom, by certificates: what they say, where they lie, and servers that let in the operator alone.

folder (tls.crt, tls.key, ca.crt) ──each handshake──► server credentials ──► RequireCaller(operator) ──► service
"""

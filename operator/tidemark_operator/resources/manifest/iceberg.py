"""The Iceberg catalogue of a ComputeInstance, over Iceberg's REST protocol.

publish: {iceberg: {uri: https://catalogue/iceberg, warehouse: lake, secretName: catalogue}}
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields


@dataclass(frozen=True, slots=True)
class IcebergCatalogue:
    """`secret`: the Secret with the credentials, one of sourceSecrets; empty: none."""

    uri: str
    warehouse: str = ""
    secret: str = ""

    @classmethod
    def parse(cls, spec: Fields) -> IcebergCatalogue | None:
        """The catalogue of the spec of an instance; None where it names none. Raises InvalidValue."""
        publish = spec.child("publish")
        if not publish.has("iceberg"):
            return None
        fields = publish.child("iceberg")
        found = cls(fields.text("uri"), fields.text("warehouse", ""), fields.text("secretName", ""))
        url = urlsplit(found.uri)
        if url.scheme not in ("https", "http") or not url.netloc or "@" in url.netloc or url.query or url.fragment:
            raise InvalidValue(fields.at("uri"), "must be https://host/path, without user, ? or #")
        if found.secret and url.scheme != "https":
            raise InvalidValue(fields.at("uri"), "must be https://, as secretName names credentials")
        if found.secret and found.secret not in spec.texts("sourceSecrets"):
            raise InvalidValue(fields.at("secretName"), "must be one of sourceSecrets, which replicas mount")
        return found

    @property
    def environment(self) -> str:
        """The catalogue as replicas read it from their environment, without secrets."""
        return json.dumps({"uri": self.uri, "warehouse": self.warehouse, "secret": self.secret})

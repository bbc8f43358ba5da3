"""Settings of the Kafka client: those of the spec, and those of a Secret.

The keys of the Secret are names of librdkafka's settings. Only settings of security are taken: others could load code
into the process (`plugin.library.paths`), run commands (`sasl.kerberos.kinit.cmd`) or read files of the pod.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tidemark_protocol.plan.kafka import KafkaSource
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.kafka.stop import BrokersAway

LOG = logging.getLogger(__name__)
PRODUCER_LOG = logging.getLogger(f"{__name__}.producer")
"""The log of producers: each turn of another replica as a fatal error, which they raise to their writer, too."""
PRODUCER_LOG.setLevel(logging.CRITICAL + 1)
SECRET_KEYS = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
    }
)
_MECHANISMS = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
QUEUE_KILOBYTES = 16 << 10
"""Kilobytes that the client fetches ahead for one topic."""
FETCH_BYTES = 4 << 20
TRANSACTION_SECONDS = 120
"""The time for which brokers keep a transaction open whose producer is gone; consumers of committed records wait for
it."""
RECORD_BYTES_MAX = 64 << 20
REQUEST_SECONDS = 5.0
"""The longest that a request to the brokers may take."""
ReadSecret = Callable[[str], Mapping[str, str]]
"""The data of the Secret of this name. Raises IngestionError."""


class KafkaClients:
    """Makes clients of one cluster. The Secret is read anew for each of them."""

    def __init__(self, spec: KafkaSource, read_secret: ReadSecret) -> None:
        self._spec, self._read_secret = spec, read_secret

    def settings(self) -> dict[str, str]:
        """The settings of every client. Raises IngestionError, SourceUnusable."""
        secret = dict(self._read_secret(self._spec.secret)) if self._spec.secret else {}
        where = f"Secret {self._spec.secret}"
        if unknown := sorted(secret.keys() - SECRET_KEYS):
            known = ", ".join(sorted(SECRET_KEYS))
            raise SourceUnusable(f"{where}: keys {', '.join(unknown)} are not taken (known: {known}); remove them")
        mechanism = secret.get("sasl.mechanism")
        # the client's own default is GSSAPI, which it cannot do
        needed = mechanism is not None or secret.get("security.protocol", "").upper().startswith("SASL_")
        if needed and mechanism not in _MECHANISMS:
            known, found = ", ".join(sorted(_MECHANISMS)), "missing" if mechanism is None else repr(mechanism[:32])
            raise SourceUnusable(f"{where}: sasl.mechanism is {found}; known are {known}")
        return {"bootstrap.servers": ",".join(self._spec.brokers), **secret}

    def consumer(self, settings: Mapping[str, str]) -> Consumer:
        """A client that reads. It joins no group."""
        return self._make_client(
            Consumer,
            {
                **settings,
                "group.id": self._spec.group or "tidemark",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": QUEUE_KILOBYTES,
                "fetch.queue.backoff.ms": 20,  # a full queue is empty soon; by default it is looked at after a second
                "fetch.message.max.bytes": FETCH_BYTES,
                "fetch.max.bytes": 4 * FETCH_BYTES,
                "check.crcs": True,
            },
        )

    def producer(
        self, settings: Mapping[str, Any], transactional_id: str, error_cb: Callable[[KafkaError], None]
    ) -> Any:
        """A client that writes transactions. `error_cb` is called in `poll` with failures of connections."""
        return self._make_client(
            Producer,
            {
                **settings,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
                "partitioner": "murmur2_random",  # where Java's clients look for a key
                "compression.type": "lz4",
                "linger.ms": 20,
                "message.max.bytes": RECORD_BYTES_MAX,  # the topic's own bound counts
                "queue.buffering.max.kbytes": QUEUE_KILOBYTES * 4,
                "delivery.report.only.error": True,
                "error_cb": error_cb,
            },
            PRODUCER_LOG,
        )

    def admin(self, settings: Mapping[str, Any]) -> AdminClient:
        """A client that asks about topics."""
        return self._make_client(AdminClient, settings)

    def _make_client(self, kind: Any, settings: Mapping[str, Any], logger: logging.Logger = LOG) -> Any:
        """A client of this kind. Raises SourceUnusable where the Kafka library refuses the settings."""
        common = {
            "client.id": "tidemark",
            "socket.timeout.ms": 10_000,
            "socket.keepalive.enable": True,
            "reconnect.backoff.max.ms": 5_000,
            "allow.auto.create.topics": False,
            "log.connection.close": False,
            "log_level": 2,  # a broker that is away is logged at 3, again and again
        }
        try:
            return kind(common | dict(settings), logger=logger)
        except KafkaException as error:
            # the client's text is left out: it may have a value, which may be a secret
            named = ", ".join(key for key in sorted(SECRET_KEYS) if key in error.args[0].str())
            where = f"Secret {self._spec.secret}: " if self._spec.secret else ""
            raise SourceUnusable(
                f"{where}the Kafka client refuses {named or 'its settings'} ({error_name(error.args[0])}); correct them"
            ) from None


def error_name(error: KafkaError) -> str:
    """The name of the error, without the client's text, which may name hosts and settings."""
    return str(error.name())


def away(error: KafkaException, what: str) -> BrokersAway:
    """The failure of a question to the brokers."""
    return BrokersAway(f"{what}: {error_name(error.args[0])}: {error.args[0].str()[:200]}")

"""The reason why a topic gets no further time of its view; the text says what to do. Each is tried again after a pause.

TopicMissing              there is no such topic, and the spec does not say how to create it
TopicReplaced             the topic was deleted and created anew
TopicNotEmpty             the topic has records, and the progress topic does not say of which view and time
TopicTaken                another view writes the topic
NotAuthorized             the user may not write, read or create something
NotAuthenticated          the brokers refuse the credentials, or their certificate is not trusted
TransactionsUnavailable   the brokers have no transactions, or none that last long enough
TopicNotCreated           the brokers refuse to create the topic as the spec says
ProgressNotKept           the brokers may remove records of the progress topic
BrokersAway               the brokers do not answer, or too few of them are there
WrittenByLater            a later revision of the Dataflow writes the topic
ViewReplaced              the topic has the rows of an earlier table of the view, with other columns
SinkChanged               the topic has records with another key, or in another envelope or format
SchemaUnfit               a column has a name or a type that Avro has not
SchemaRefused             the registry does not take the schema of the keys or of the values
SchemaReplaced            the registry gives the schema of the keys another id than the topic's records have
RegistryAway              the registry of schemas does not answer, or refuses the credentials
HistoryGone               the view's history since the topic's time is compacted
KeyNotUnique              several rows of the view have one key
KeyUnfit                  a key column is not there, or of a type that no key has
ValueNotSupported         a date or timestamp is beyond the years 1 to 9999
TimeTooLarge              one time has more updates, or takes longer, than a transaction does
RecordTooLarge            the topic does not take a record of this size
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from tidemark_persist import PersistError
from tidemark_replica.sinks.destinations.destination import DestinationStopped

TOPIC_MISSING = "TopicMissing"
TOPIC_REPLACED = "TopicReplaced"
TOPIC_NOT_EMPTY = "TopicNotEmpty"
TOPIC_TAKEN = "TopicTaken"
NOT_AUTHORIZED = "NotAuthorized"
NOT_AUTHENTICATED = "NotAuthenticated"
TRANSACTIONS_UNAVAILABLE = "TransactionsUnavailable"
BROKERS_AWAY = "BrokersAway"
WRITTEN_BY_LATER = "WrittenByLater"
VIEW_REPLACED = "ViewReplaced"
SINK_CHANGED = "SinkChanged"
HISTORY_GONE = "HistoryGone"
KEY_NOT_UNIQUE = "KeyNotUnique"
KEY_UNFIT = "KeyUnfit"
VALUE_NOT_SUPPORTED = "ValueNotSupported"
TIME_TOO_LARGE = "TimeTooLarge"
RECORD_TOO_LARGE = "RecordTooLarge"
TOPIC_NOT_CREATED = "TopicNotCreated"
PROGRESS_NOT_KEPT = "ProgressNotKept"
SCHEMA_UNFIT = "SchemaUnfit"
SCHEMA_REFUSED = "SchemaRefused"
SCHEMA_REPLACED = "SchemaReplaced"
REGISTRY_AWAY = "RegistryAway"

_BY_CODE = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: NOT_AUTHORIZED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: NOT_AUTHORIZED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NOT_AUTHORIZED,
    KafkaError.GROUP_AUTHORIZATION_FAILED: NOT_AUTHORIZED,
    KafkaError.SASL_AUTHENTICATION_FAILED: NOT_AUTHENTICATED,
    KafkaError._AUTHENTICATION: NOT_AUTHENTICATED,
    KafkaError._SSL: NOT_AUTHENTICATED,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TOPIC_MISSING,
    KafkaError._UNKNOWN_TOPIC: TOPIC_MISSING,
    KafkaError._UNKNOWN_PARTITION: TOPIC_MISSING,
    KafkaError.UNSUPPORTED_VERSION: TRANSACTIONS_UNAVAILABLE,
    KafkaError._UNSUPPORTED_FEATURE: TRANSACTIONS_UNAVAILABLE,
    KafkaError.MSG_SIZE_TOO_LARGE: RECORD_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: RECORD_TOO_LARGE,
    KafkaError.INVALID_TRANSACTION_TIMEOUT: TRANSACTIONS_UNAVAILABLE,
    KafkaError.INVALID_REPLICATION_FACTOR: TOPIC_NOT_CREATED,
    KafkaError.INVALID_PARTITIONS: TOPIC_NOT_CREATED,
    KafkaError.POLICY_VIOLATION: TOPIC_NOT_CREATED,
    KafkaError.NOT_ENOUGH_REPLICAS: BROKERS_AWAY,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: BROKERS_AWAY,
}
_NO_ANSWER = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
"""Errors that do not say why: the last failure of a connection does."""
_ADVICE = {
    NOT_AUTHORIZED: "give the user the rights that the guide to Kafka sinks lists",
    NOT_AUTHENTICATED: "correct the Secret",
    TOPIC_MISSING: "create the topic, or give create.partitions",
    TRANSACTIONS_UNAVAILABLE: "use brokers that have transactions",
    RECORD_TOO_LARGE: "raise max.message.bytes of the topic",
    TOPIC_NOT_CREATED: "correct create.partitions and create.replication, or create the topic yourself",
    BROKERS_AWAY: "it is tried again",
}
_TOO_FEW = (
    "fewer replicas are in sync than min.insync.replicas of the topic asks for: see the brokers; it is tried again"
)
_ADVICE_BY_CODE = {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "raise transaction.max.timeout.ms of the brokers to 120000 at least",
    KafkaError.NOT_ENOUGH_REPLICAS: _TOO_FEW,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _TOO_FEW,
}
FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.FENCED_INSTANCE_ID}
)


class Overtaken(PersistError):
    """Another producer has begun to write the topic; this one looks again after a pause."""


class Failures:
    """Names the failures of a client's requests. It is the client's callback for failures of connections: they say why
    no broker answers. `last` is cleared by whoever has an answer."""

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        self.last = error

    @property
    def is_refused(self) -> bool:
        """Whether the brokers refuse the credentials, so that asking again is no use."""
        return self.last is not None and _BY_CODE.get(self.last.code()) == NOT_AUTHENTICATED

    def refused(self, what: str, error: KafkaError) -> DestinationStopped | Overtaken:
        """The failure of a request."""
        if error.code() in FENCED:
            return Overtaken(f"{what}: another replica, or another sink of the topic, has begun to write it")
        if error.code() in _NO_ANSWER and self.last is not None:
            error = self.last
        reason = _BY_CODE.get(error.code(), BROKERS_AWAY)
        advice = _ADVICE_BY_CODE.get(error.code()) or _ADVICE[reason]
        return DestinationStopped(reason, f"{what}: {error.name()}: {error.str()[:200]}; {advice}")


def error_of(raised: KafkaException) -> KafkaError:
    """The client's error in an exception."""
    found: KafkaError = raised.args[0]
    return found

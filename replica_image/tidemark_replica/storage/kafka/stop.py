"""The reason why a table takes no further record.

TopicMissing        there is no such topic (any more)
TopicReplaced       a topic of the same name was created anew
OffsetGone          the next record was removed (retention, DeleteRecords), or the topic ends before it
NotAuthorized       the credentials do not allow to read the topic
Truncated           the table of a database was truncated, whose change events the topic has
OtherOrigin         an event is of another table than its topic's name says, of another connector than PostgreSQL's, or
                    has no transaction any more (with `transactions` alone)
SequenceMissing     an event does not say where it is in the database's log (with `transactions` alone)
TooManyErrors       a table by key would have more errors of malformed records than it may keep
RecordsGone         a table with further columns cannot read the records of the table before it again (`read_again.py`)
TableBeforeStopped  it has to wait for the table before it to read on, which is stopped
RowsDiffer          it has read them again, and has other rows than that table
"""

from __future__ import annotations

from tidemark_replica.storage.errors import IngestionError

TOPIC_MISSING = "TopicMissing"
TOPIC_REPLACED = "TopicReplaced"
OFFSET_GONE = "OffsetGone"
NOT_AUTHORIZED = "NotAuthorized"
TRUNCATED = "Truncated"
TOO_MANY_ERRORS = "TooManyErrors"
OTHER_ORIGIN = "OtherOrigin"
SEQUENCE_MISSING = "SequenceMissing"
RECORDS_GONE = "RecordsGone"
ROWS_DIFFER = "RowsDiffer"
TABLE_BEFORE_STOPPED = "TableBeforeStopped"
GAPS = frozenset({TOPIC_REPLACED, OFFSET_GONE})
"""Reasons that `onGap: skip` passes over."""


class BrokersAway(IngestionError):
    """The brokers do not answer, or refuse the connection; the tables wait. The message says why."""

"""Records that several tables of one name decode, whose headers Python's client cannot show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.test_kafka_successors import grown, ingested, table
from tests.kafka.topics import Run, new_topic, produce, produce_with_header, spec_of
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.plan.ingestion import Option
from tidemark_protocol.types import STRING, Column

pytestmark = pytest.mark.kafka


def test_headers_that_are_no_text_are_errors_of_both_tables(kafka: Broker, tmp_path: Path) -> None:
    """The client gives broken objects for such a record, at which the process would die."""
    topic = new_topic(kafka)
    produce(kafka, topic, {"id": 1, "vip": "a"})
    spec = spec_of(kafka, table(topic, metadata=(Option("h", "headers"),)))
    ingested(tmp_path, spec)
    both = grown(grown(spec), Column("more", STRING), 3)
    ingested(tmp_path, both)
    produce_with_header(kafka, topic, b"\xff", b'{"id": 2, "vip": "b"}')
    produce_with_header(kafka, topic, b"good", b'{"id": 3, "vip": "c"}')
    with Run(tmp_path, both) as run:
        run.catch_up()
        assert run.source._successors.in_step() == {"t": ["t.2", "t.3"]}
    for name in ("t", "t.2", "t.3"):
        rows = [(row[0], row[-1]) for row in oks(tmp_path, name)]
        assert rows == [(1, None), (3, [{"key": "good", "value": b"1"}])]
        assert len(errors(tmp_path, name)) == 1
        assert errors(tmp_path, name) == errors(tmp_path, "t")

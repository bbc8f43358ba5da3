"""Documents that an earlier version stored beside plans have the same names now, and the same values.

stored.json    what status, ControllerRevisions, process folders, commits of shards and errors hold, and digests
shard/         a remap shard of three rows: log, data files, a lease, a mark of vacuum
deleted/       one whose deletion was cut short after the tombstone
claimed/       a put_if_absent
"""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.golden.stored import ATTEMPTS, LAYOUT, MANIFEST, PROCESS, STORED
from tests.golden.values import INGESTIONS, REVISION
from tidemark_operator.handlers.hydration.hydration_slot_record import SlotRecord
from tidemark_operator.kube.revisions import parse_revision
from tidemark_operator.orchestrator.local.process_record import Home, Record
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_operator.process_liveness import ProcessId
from tidemark_persist import ShardDeleted, create_or_open, open_shard
from tidemark_persist.log.conditional_put import read_record
from tidemark_persist.maintenance.lease import oldest_leased
from tidemark_persist.maintenance.vacuum import read_mark
from tidemark_persist.storage.storage import Storage
from tidemark_protocol.plan.ingestion import IngestionDescription
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.storage.files.source import FilesIngestion
from tidemark_replica.values.error_text import readable_error

HERE = Path(__file__).parent
GOLDEN: Mapping[str, Any] = json.loads((HERE / "stored.json").read_text())


@pytest.mark.parametrize("name", STORED)
def test_it_is_written_as_before(name: str) -> None:
    """Earlier and later versions read these names and compare these digests."""
    assert json.loads(json.dumps(STORED[name]())) == GOLDEN[name], (
        f"{name} is stored under other names than in tests/golden/stored.json: keep the stored names when classes "
        "and attributes are renamed, or change the format and add a line to CHANGELOG.md"
    )


def test_all_that_is_kept_is_compared() -> None:
    """Nothing leaves stored.py that stored.json still has."""
    assert set(GOLDEN) == set(STORED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ControllerRevision of a Dataflow", REVISION),
        ("ControllerRevision of a DataSource", INGESTIONS[0]),
    ],
)
def test_stored_revisions_are_read(name: str, value: DataflowRevision | IngestionDescription) -> None:
    """The compressed bytes may differ between versions of zlib."""
    body = GOLDEN[name]
    data = base64.b64encode(zlib.compress(body["data"]["plan"].encode(), 1)).decode()

    assert parse_revision({**body, "data": {**body["data"], "plan": data}}, type(value)) == value


def test_the_folder_of_a_process_is_read(tmp_path: Path) -> None:
    """The process that an earlier operator started is the same one."""
    for name in ("process.json", "attempts.json"):
        (tmp_path / name).write_text(json.dumps(GOLDEN[name]))
    home = Home(tmp_path)

    assert home.record() == Record(ProcessId(12, 34), PROCESS["digest"], PROCESS["startedAt"])
    assert home.attempts() == ATTEMPTS


def test_stored_hydration_slots_are_read() -> None:
    """The slots are of the one process, or of one shape among several."""
    slots = {"incarnation": "12-34", "dataflows": [{"dataflow": "revenue", "revision": "revenue-r4"}]}
    expected = SlotRecord("12-34", ("revenue-r4",))

    assert SlotRecord.of({"status": {"hydrating": slots}}, "") == expected
    assert SlotRecord.of({"status": {"hydratingIn": {"3f9c": slots}}}, "3f9c") == expected


def test_an_error_is_read() -> None:
    assert readable_error(GOLDEN["__error"]) == "DIVIDE_BY_ZERO in a / b"


def test_a_manifest_is_read() -> None:
    """Its layout has Arrow's bytes for the types, which are of today."""
    golden = GOLDEN["arrangement manifest"]
    layout = {**json.loads(LAYOUT.text), **golden["layout"]}

    assert Manifest.from_json({**golden, "layout": json.dumps(layout)}) == MANIFEST


def test_a_shard_is_read_and_written(tmp_path: Path) -> None:
    """Rows of a remap shard, its frontiers and its term; the writer that comes next goes on from there."""
    location = str(tmp_path / "shard")
    shutil.copytree(HERE / "shard", location)
    snapshot = open_shard(location).snapshot(2000)
    rows = sorted(tuple(row[name] for name in FilesIngestion.remap_schema.names) for row in snapshot.to_pylist())

    assert rows == [("orders", "a.csv", 10, 5), ("orders", "b.csv", 20, 6), ("parts", "c.csv", 30, 7)]
    shard = create_or_open(location, FilesIngestion.remap_schema, shard_id="s1/remap")
    state = shard.state()
    assert (state.upper, state.since, state.term) == (2001, 1500, 3)
    shard.fence(4)
    shard.compare_and_append(None, expected_upper=2001, new_upper=3000, term=4)
    assert (shard.state().upper, shard.state().term) == (3000, 4)


def test_files_beside_a_shard_are_read(tmp_path: Path) -> None:
    """A lease keeps vacuum away; a mark says what it may take."""
    shutil.copytree(HERE / "shard", tmp_path / "shard")
    storage, mark = Storage.at(str(tmp_path / "shard")), read_mark(Storage.at(str(HERE / "shard")))

    assert oldest_leased(storage) == 2
    assert mark is not None
    assert (mark.version, mark.paths) == (4, ("x.parquet",))


def test_a_tombstone_is_read(tmp_path: Path) -> None:
    """Nobody takes it for a living shard, and its deletion can be finished."""
    shutil.copytree(HERE / "deleted", tmp_path / "deleted")

    with pytest.raises(ShardDeleted):
        create_or_open(str(tmp_path / "deleted"), FilesIngestion.remap_schema, shard_id="s1/remap")


def test_a_claim_is_read() -> None:
    assert read_record(Storage.at(str(HERE / "claimed"))) == {"attempt": "a1", "rows": 3}

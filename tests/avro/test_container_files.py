"""Container files become rows as fastavro reads them, in pieces of any size; damaged ones are found."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import random
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.avro.containers import MARKER, container, peers_rows, read_pieces
from tests.avro.samples import Schemas, value_of
from tests.avro.test_avro_bodies import expected
from tidemark_replica.storage.avro import block_records, walk
from tidemark_replica.storage.avro import container as module
from tidemark_replica.storage.avro.block_records import RecordFinder
from tidemark_replica.storage.avro.container import (
    Block,
    NotAvro,
    blocks_between,
    decompressed,
    looks_complete,
    read_header,
)
from tidemark_replica.storage.avro.schema import parse_schema
from tidemark_replica.storage.files.streamed.avro_pieces import BLOCK_COST, GROUP_BYTES, groups_of

CODECS = ("null", "deflate", "bzip2", "xz")
LINE = {
    "type": "record",
    "name": "Line",
    "fields": [{"name": "n", "type": "long"}, {"name": "text", "type": ["null", "string"]}],
}


def counted(rows: list[Any]) -> Counter[str]:
    """The rows without their order: blocks are read side by side. Zones of times are UTC in several ways."""
    return Counter(repr(row).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") for row in rows)


def lines(count: int, codec: str = "null", block_bytes: int = 200) -> bytes:
    values = [{"n": n * n - 50, "text": None if n % 3 == 0 else "x" * (n % 90)} for n in range(count)]
    return container(LINE, values, codec, block_bytes)


@pytest.fixture(params=[0, 1000], ids=["side by side", "walked"])
def walked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are found both ways."""
    monkeypatch.setattr(block_records, "WALKED_BLOCKS", request.param)


@pytest.mark.usefixtures("walked")
@pytest.mark.parametrize("seed", range(40))
def test_agree_with_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random schemas and records, small and large blocks, lists in steps and walked, pieces of any size."""
    rng = random.Random(seed)
    monkeypatch.setattr(block_records, "STEPS_MAX", rng.choice([1, 2, 64]))
    schema = Schemas(rng).record()
    values = [value_of(schema, rng) for _ in range(rng.choice([0, 1, 30, 200]))]
    file = container(schema, values, rng.choice(CODECS), rng.choice([1, 100, 16_000]))
    pieces, batch = rng.choice([50, 1000, 1 << 62]), rng.choice([1, 7, 1000])
    rows, malformed = read_pieces(file, pieces, batch=batch)
    assert malformed == 0
    assert counted(rows) == counted([expected(schema, value) for value in peers_rows(file)])
    assert looks_complete(io.BytesIO(file))


@pytest.mark.usefixtures("walked")
def test_long_lists_and_maps_are_passed_over() -> None:
    """Also in blocks of elements, of which the writer says the bytes."""
    schema = {
        "type": "record",
        "name": "L",
        "fields": [
            {"name": "m", "type": {"type": "map", "values": ["null", "long"]}},
            {"name": "u", "type": ["int", "string", {"type": "array", "items": "string"}]},
            {"name": "l", "type": {"type": "array", "items": {"type": "array", "items": "int"}}},
        ],
    }
    rng = random.Random(3)
    values: list[dict[str, Any]] = [
        {
            "m": {str(i): rng.choice([None, i]) for i in range(rng.choice([0, 1, 1, 90]))},
            "u": rng.choice([5, "text", ["a"] * 80]),
            "l": [list(range(rng.choice([0, 3, 100]))) for _ in range(rng.choice([0, 2, 2, 70]))],
        }
        for _ in range(25)
    ]
    taken = parse_schema(json.dumps({**schema, "fields": [schema["fields"][2]]}))  # type: ignore[index]
    file = container(schema, values, block_bytes=3000)
    assert counted(read_pieces(file, 4000, taken)[0]) == counted([{"l": value["l"]} for value in values])


@pytest.mark.usefixtures("walked")
@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("seed", range(8))
def test_garbled_files_are_found_or_read_as_one_by_one(seed: int, codec: str) -> None:
    """A byte that no checksum holds makes another value, the same one for every reader."""
    rng = random.Random(seed)
    schema = Schemas(rng).record()
    file = container(schema, [value_of(schema, rng) for _ in range(30)], codec, 300)
    header = read_header(io.BytesIO(file)).end
    for _ in range(20):
        at = rng.randrange(header, len(file))
        other = rng.choice([b"", bytes([rng.randrange(256)]), rng.randbytes(3), b"\xff" * 10, b"\x01"])
        garbled = file[:at] + other + file[at + 1 :]
        try:
            rows, malformed = read_pieces(garbled, rng.choice([200, 1 << 62]))
        except NotAvro:
            continue
        if not malformed:
            assert counted(rows) == counted([expected(schema, value) for value in peers_rows(garbled)])


def test_a_cut_file_is_found_but_at_the_end_of_a_block() -> None:
    """And it looks unfinished, so that a folder waits for the rest."""
    file = lines(30, block_bytes=100)
    whole = read_pieces(file)[0]
    ends = {i + len(MARKER) for i in range(len(file)) if file.startswith(MARKER, i)}
    assert len(ends) > 3
    for cut in range(len(file)):
        part = file[:cut]
        assert looks_complete(io.BytesIO(part)) == (cut in ends)
        if cut in ends:
            assert counted(read_pieces(part)[0]) <= counted(whole)
        else:
            with pytest.raises(NotAvro):
                read_pieces(part)


def test_what_is_no_avro_file_looks_complete() -> None:
    """The file is refused, and not waited for."""
    for file in (b"PAR1 nonsense PAR1", b"1234"):
        assert looks_complete(io.BytesIO(file))
        with pytest.raises(NotAvro, match="does not begin"):
            read_header(io.BytesIO(file))
    assert not looks_complete(io.BytesIO(b""))
    for known, unknown in ((b"\x08null", b"\x08lzo1"), (b"avro.schema", b"avro.schemo")):
        file = lines(1).replace(known, unknown)
        assert looks_complete(io.BytesIO(file))
        assert not looks_complete(io.BytesIO(file[: file.index(unknown) + 3]))


def zigzag(number: int) -> bytes:
    value, found = number << 1 if number >= 0 else (-number << 1) - 1, b""
    while value > 0x7F:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


@pytest.mark.usefixtures("walked")
@pytest.mark.parametrize(
    ("count", "length", "data"),
    [
        (2**61, 2, b"\x02\x00"),
        (-1, 2, b"\x02\x00"),
        (1, 2**61, b"\x02\x00"),
        (1, -2, b"\x02\x00"),
        (2, 2, b"\x02\x00"),
        (1, 4, b"\x02\x00\x02\x00"),
        (0, 2, b"\x02\x00"),
        (1, 1, b"\x80"),
        (1, 2, b"\x02\x04"),
        (1, 2, b"\x02\x01"),
        (2, 3, b"\x02\x02\x07"),
        (1, 3, b"\x02\x02\x7e"),
        (1, 12, b"\x02\x02" + b"\xfe" + b"\xff" * 8 + b"\x01"),
        (1, 12, b"\x02\x02" + b"\xff" * 9 + b"\x01"),
        (1, 12, b"\xff" * 11 + b"\x00"),
    ],
)
def test_counts_and_lengths_that_cannot_be(count: int, length: int, data: bytes) -> None:
    """Beside a block that is good, before and behind it."""
    head = lines(0)
    good = lines(1)[len(head) :]
    bad = zigzag(count) + zigzag(length) + data + MARKER
    for file in (head + bad, head + good + bad, head + bad + good):
        with pytest.raises(NotAvro):
            read_pieces(file)


ZEROS = bytes(1 << 20)
COMPRESSED: dict[str, Callable[[int], bytes]] = {
    "deflate": lambda n: zlib.compress(ZEROS * n)[2:-1],
    "bzip2": lambda n: bz2.compress(ZEROS * n),
    "xz": lambda n: lzma.compress(ZEROS * n),
    "zstandard": lambda n: pa.compress(ZEROS * n, "zstd", asbytes=True),
    "snappy": lambda n: pa.compress(ZEROS * n, "snappy", asbytes=True) + zlib.crc32(ZEROS * n).to_bytes(4, "big"),
}


@pytest.mark.parametrize("codec", COMPRESSED)
def test_blocks_become_no_more_than_a_limit(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a cut or damaged one is found."""
    monkeypatch.setattr(module, "BLOCK_BYTES_MAX", 3 << 20)
    assert decompressed(codec, COMPRESSED[codec](3)) == ZEROS * 3
    with pytest.raises(NotAvro, match="becomes"):
        decompressed(codec, COMPRESSED[codec](4))
    good = COMPRESSED[codec](1)
    for bad in (good[: len(good) // 2], good[:5], b"\x00" + good[1:] if codec != "deflate" else b"\x07" + good[1:]):
        with pytest.raises(NotAvro):
            decompressed(codec, bad)


def test_a_file_becomes_no_more_than_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has many blocks, none of which is too large."""
    file = container(LINE, [{"n": n, "text": "x" * 50_000} for n in range(20)], "deflate", 1)
    monkeypatch.setattr(module, "FREE_BYTES", 1_100_000)
    assert len(read_pieces(file)[0]) == 20
    monkeypatch.setattr(module, "EXPANSION_MAX", 1)
    assert len(read_pieces(file)[0]) == 20
    monkeypatch.setattr(module, "FREE_BYTES", 900_000)
    with pytest.raises(NotAvro, match="more than 1 times its size"):
        read_pieces(file)


def test_headers_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too long, of an unknown codec, without a schema."""
    file = lines(1)
    with pytest.raises(NotAvro, match=r"codec 'nulx' is none of null, deflate, snappy"):
        read_header(io.BytesIO(file.replace(b"\x08null", b"\x08nulx")))
    with pytest.raises(NotAvro, match="no schema"):
        read_header(io.BytesIO(file.replace(b"avro.schema", b"avro.schemo")))
    for number in (2**60, -5):
        with pytest.raises(NotAvro):
            read_header(io.BytesIO(b"Obj\x01\x02" + zigzag(number) + b"x" * 100))
    monkeypatch.setattr(module, "HEADER_BYTES_MAX", 1 << 10)
    many = b"Obj\x01" + zigzag(1 << 40) + b"\x00\x00" * 600
    with pytest.raises(NotAvro, match="longer"):
        read_header(io.BytesIO(many))


def test_blocks_within_the_data_are_no_blocks() -> None:
    """A text that ends its record is a marker and a block, which ends with the marker of the record's own block. A
    task that begins between them would read that."""
    inner = (MARKER + zigzag(1) + zigzag(2) + b"\x02\x00").decode()
    values = [{"n": n, "text": inner if n % 4 == 1 else "x" * 30} for n in range(12)]
    file = container(LINE, values, block_bytes=1)
    assert counted(read_pieces(file)[0]) == counted(values)
    refused = 0
    for piece_bytes in range(80, len(file)):
        try:
            rows = read_pieces(file, piece_bytes)[0]
        except NotAvro:
            refused += 1
        else:
            assert counted(rows) == counted(values), piece_bytes
    assert 0 < refused < len(file) - 80


@pytest.mark.parametrize("marker", [MARKER, bytes(16)])
def test_markers_among_the_data_change_no_row(marker: bytes) -> None:
    """The writer's marker occurs in the data, too: pieces are read right, or the file is refused."""
    refused = 0
    for seed in range(60):
        rng = random.Random(seed)
        values = [{"n": n, "text": (marker * (rng.random() < 0.1)).decode("latin-1")} for n in range(30)]
        file = container(LINE, values, block_bytes=rng.choice([1, 60])).replace(MARKER, marker)
        assert counted(read_pieces(file)[0]) == counted(values)
        try:
            rows = read_pieces(file, rng.randrange(80, 300))[0]
        except NotAvro:
            refused += 1
        else:
            assert counted(rows) == counted(values)
    assert 0 < refused < 60


LISTS = {"type": "record", "name": "L", "fields": [{"name": "l", "type": {"type": "array", "items": "int"}}]}


@pytest.mark.usefixtures("walked")
def test_few_bytes_are_decoded_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few records they are: elements of lists take more memory than bytes."""
    monkeypatch.setattr(block_records, "BATCH_BYTES", 1000)
    values = [{"l": [1] * (count * 7 % 300)} for count in range(200)]
    file = container(LISTS, values, block_bytes=2000)
    source = io.BytesIO(file)
    header = read_header(source)
    find, blocks = RecordFinder(header.writer()), list(blocks_between(source, header, 0, len(file), len(file)))
    sizes = [int((bodies.end - bodies.pos).sum()) for bodies in find(blocks, 1000)]
    assert sum(sizes) == sum(len(block.data) for block in blocks)
    assert max(sizes) < 1000 + 320 * len(blocks)
    assert counted(read_pieces(file)[0]) == counted(values)


def test_lists_that_go_on_over_other_blocks_are_not_walked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for them would grow with the square of the file."""
    walked = []

    def past_list(element: Any, data: memoryview, at: int, end: int, count: int = 0) -> int:
        found = walk.past_list(element, data, at, end, count)
        walked.append(found - at)
        return found

    monkeypatch.setattr(block_records, "past_list", past_list)
    writer = parse_schema(json.dumps(LISTS))
    begins = [zigzag(99_000 - 500 * n) + bytes(400) for n in range(90)]
    with pytest.raises(NotAvro, match="goes on"):
        list(RecordFinder(writer)([*(Block(1, data) for data in begins), Block(1, bytes(100_000))], 1000))
    assert 0 < sum(walked) < 400_000


@pytest.mark.usefixtures("walked")
def test_unions_of_many_branches() -> None:
    """Only the branches that are there are looked for."""
    names = [f"E{n}" for n in range(300)]
    branches: list[Any] = ["null", *({"type": "enum", "name": name, "symbols": [f"s{name}"]} for name in names)]
    schema = {"type": "record", "name": "U", "fields": [{"name": "u", "type": branches}, {"name": "n", "type": "int"}]}
    values = [{"u": None if n % 7 == 0 else f"sE{n * 13 % 300}", "n": n} for n in range(400)]
    taken = parse_schema(json.dumps({**schema, "fields": [{"name": "n", "type": "int"}]}))
    rows, malformed = read_pieces(container(schema, values, block_bytes=50), reader=taken)
    assert (counted(rows), malformed) == (counted([{"n": value["n"]} for value in values]), 0)


def test_blocks_without_data_take_memory_too() -> None:
    """A group has at most a number of them."""
    groups = list(groups_of(Block(0, b"") for _ in range(300_000)))
    assert sum(map(len, groups)) == 300_000
    assert max(map(len, groups)) <= GROUP_BYTES // BLOCK_COST

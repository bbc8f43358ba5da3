"""Compressed text: what archives become, damaged and hostile ones included, and how bytes become lines."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Iterator

import pyarrow as pa
import pytest

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.streamed import compression
from tidemark_replica.storage.files.streamed.compression import ArchiveUnreadable, compression_of, decompressed
from tidemark_replica.storage.files.streamed.lines import NotText, lines

TEXT = b"".join(b"%d,row %d\n" % (i, i * 7919) for i in range(500))


def compressed(kind: str, data: bytes) -> bytes:
    return gzip.compress(data) if kind == "gzip" else bytes(pa.compress(data, codec="zstd", asbytes=True))


def contents(kind: str, archive: bytes) -> bytes:
    return b"".join(decompressed(io.BytesIO(archive), kind, len(archive)))


def test_the_name_or_the_table_says_how_a_file_is_compressed() -> None:
    """Parquet and other formats compress inside."""
    table = FilesTable("t", "csv", "/in")
    assert [compression_of(table, n) for n in ("a.csv", "a.csv.gz", "a.zst")] == ["none", "gzip", "zstd"]
    assert compression_of(FilesTable("t", "json", "/in", compression="zstd"), "a.gz") == "zstd"
    assert compression_of(FilesTable("t", "parquet", "/in"), "a.gz") == "none"


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_an_archive_that_is_cut_anywhere_is_unreadable(kind: str) -> None:
    """At every byte; several members are one text, and bytes after the end are damage."""
    archive = compressed(kind, TEXT)
    assert contents(kind, archive) == TEXT
    assert contents(kind, archive + archive) == TEXT + TEXT
    for length in range(len(archive)):
        with pytest.raises(ArchiveUnreadable):
            contents(kind, archive[:length])
    with pytest.raises(ArchiveUnreadable):
        contents(kind, archive + b"garbage")
    with pytest.raises(ArchiveUnreadable):
        contents(kind, TEXT)


def test_a_damaged_gzip_archive_never_gives_other_bytes() -> None:
    """Its checksum covers them."""
    archive = compressed("gzip", TEXT)
    for at in range(len(archive)):
        spoilt = bytearray(archive)
        spoilt[at] ^= 1 << at % 8
        try:
            assert contents("gzip", bytes(spoilt)) == TEXT
        except ArchiveUnreadable:
            continue


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_bomb_is_given_up_at_the_limit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that becomes a large one, in chunks, so that no more than one is in memory."""
    monkeypatch.setattr(compression, "FREE_BYTES", 1 << 20)
    bomb = compressed(kind, b"0" * (64 << 20))
    assert len(bomb) < 100_000
    found: list[int] = []
    with pytest.raises(ArchiveUnreadable, match="more than 250 times"):
        found.extend(len(chunk) for chunk in decompressed(io.BytesIO(bomb), kind, len(bomb)))
    assert max(found) <= compression.CHUNK_BYTES
    assert sum(found) <= (1 << 20) + 250 * len(bomb)


class _Broken(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise FileNotFoundError(2, "gone")


def test_an_error_of_the_source_stays_what_it_is() -> None:
    """A file that is gone is no damaged archive."""
    with pytest.raises(FileNotFoundError):
        list(decompressed(_Broken(), "gzip", 100))


def split(data: bytes, size: int) -> list[str]:
    def parts() -> Iterator[bytes]:
        for at in range(0, len(data), size):
            yield data[at : at + size]

    return [line for found in lines(parts()) for line in found.to_pylist()]


def test_lines_are_those_of_universal_newlines_wherever_chunks_end() -> None:
    """Random texts of the characters that matter, in chunks of any size; a byte order mark goes."""
    draw = random.Random(5)
    for _ in range(400):
        text = "".join(draw.choice(["a", "é", ",", "\n", "\r", "\r\n", "\u2028", "\x0b"]) for _ in range(12))
        data = draw.choice([b"", b"\xef\xbb\xbf"]) + text.encode()
        expected = [line.rstrip("\n") for line in io.StringIO(text, newline=None)]
        for size in (1, 2, 3, 5, 100):
            assert split(data, size) == expected, (data, size)


def test_lines_are_refused_that_are_not_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Latin-1, a character that is cut at the end of the file, and a line without end."""
    for data in (b"a\nM\xfcnchen\n", b"a\n\xc3"):
        with pytest.raises(NotText, match="UTF-8"):
            split(data, 4)
    monkeypatch.setattr("tidemark_replica.storage.files.streamed.lines.LINE_BYTES_MAX", 100)
    with pytest.raises(NotText, match="longer"):
        split(b"0" * 300, 50)

"""Pieces of a text have its lines, each once, wherever the text is cut."""

from __future__ import annotations

import io
import random

import pytest

from tidemark_protocol.plan.ingestion import FilesTable
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.streamed import pieces
from tidemark_replica.storage.files.streamed.lines import lines
from tidemark_replica.storage.files.streamed.pieces import pieces_of, text_of


def test_the_lines_of_all_pieces_are_those_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines have any length, and any ends, in pieces of any size, read in parts of any size."""
    draw = random.Random(3)
    for _ in range(600):
        text = "".join(draw.choice(["a", "é", "\n", "\n", "\r\n", "\r", "\ufeff"]) for _ in range(draw.randrange(30)))
        data = text.encode()
        monkeypatch.setattr(pieces, "PIECE_BYTES", draw.randrange(1, 12))
        monkeypatch.setattr(pieces, "_READ_BYTES", draw.randrange(1, 6))
        found = pieces_of(FilesTable("t", "csv", "s3://b/p"), [FileVersion("f", len(data), 1)])
        read = [
            line
            for piece in found
            for each in lines(text_of(io.BufferedReader(io.BytesIO(data)), piece), at_start=piece.start == 0)  # type: ignore[arg-type]
            for line in each.to_pylist()
        ]
        assert read == [line.rstrip("\n") for line in io.StringIO(text.removeprefix("\ufeff"), newline=None)]


def test_archives_are_one_piece() -> None:
    """They cannot be read from the middle. An empty file is one piece, too."""
    files = [FileVersion("a.gz", 1 << 30, 1), FileVersion("b", 0, 1), FileVersion("c", (64 << 20) + 1, 1)]
    found = pieces_of(FilesTable("t", "csv", "s3://b/p"), files)
    assert [(p.file.name, p.start, p.end) for p in found] == [
        ("a.gz", 0, 1 << 30),
        ("b", 0, 0),
        ("c", 0, 64 << 20),
        ("c", 64 << 20, (64 << 20) + 1),
    ]

"""Generated code and pages are up to date."""

from __future__ import annotations

from pathlib import Path

from grpc_tools import protoc

from tests.tidy.checkout import ROOT
from tools.reference_pages import pages

PB = ROOT / "protocol" / "tidemark_protocol" / "pb"


def test_protobuf_code_is_what_make_proto_makes(tmp_path: Path) -> None:
    """A .proto that changed without `make proto` would be spoken by nobody."""
    sources = [str(path) for path in sorted(PB.glob("*.proto"))]
    outputs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    assert protoc.main(["protoc", f"-I{ROOT / 'protocol'}", *outputs, *sources]) == 0

    made = {path.name: path.read_text() for path in (tmp_path / "tidemark_protocol" / "pb").iterdir()}
    kept = {path.name: path.read_text() for path in PB.glob("*_pb2*.py*")}
    assert made.keys() == kept.keys()
    assert [file for file in made if made[file] != kept[file]] == []


def test_reference_pages_are_what_make_reference_makes() -> None:
    """A field or function that is added or explained anew is in the reference."""
    assert [page.name for page, text in pages().items() if page.read_text() != text] == []

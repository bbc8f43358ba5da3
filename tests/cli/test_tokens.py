"""Files that should hold a token, and do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemark_cli.main import main

CONTENTS = {"nothing": b"", "no text": b"\xff\xfe", "lines": b"two\nlines", "a folder": None}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_malformed_token_file_is_named(
    tmp_path: Path, content: bytes | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before anybody is asked."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    (tmp_path / "gateway.json").write_text(json.dumps({"address": "127.0.0.1:1", "tokenFile": "there"}))
    file = tmp_path / "mine"
    file.mkdir() if content is None else file.write_bytes(content)

    assert main(["query", "SELECT 1", "--token-file", str(file)]) == 1
    says = f"error: {file} " + ("cannot be read: Is a directory" if content is None else "holds no token")
    assert capsys.readouterr().err == says + "\n"

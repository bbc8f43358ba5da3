"""Runbooks without a system: each command is known to the tests, and nothing is left to a placeholder by mistake."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.runbooks.guides import DOCS, GUIDES, PAGES, TUTORIAL, blocks

KINDS = {"sh", "sh copy", "sh cluster", "sh usage"}
FENCED = re.compile(r"^```(?P<kind>.*)\n(?P<text>(?:.*\n)*?)^```$", re.MULTILINE)
COMMAND = re.compile(r"^(kubectl|helm|tidemark) (?!=)", re.MULTILINE)


def test_every_page_with_commands_is_a_runbook_of_the_tests() -> None:
    """A page that is added with commands must be run."""
    pages = {path for path in DOCS.rglob("*.md") if "```sh" in path.read_text()}
    assert pages == {(GUIDES / f"{page}.md").resolve() for page in (*PAGES, TUTORIAL)}


def bare(text: str) -> list[str]:
    """Commands in blocks that are not said to be commands, which nothing would look at."""
    found = [block for block in FENCED.finditer(text) if not block["kind"].startswith("sh")]
    return [block["text"] for block in found if COMMAND.search(block["text"])]


def test_no_command_stands_where_no_test_looks() -> None:
    """In any page; and one that does is found."""
    assert {path.name: found for path in DOCS.rglob("*.md") if (found := bare(path.read_text()))} == {}
    assert bare("a\n```\nx\nkubectl get pods\n```\nb\n```sh\nhelm list\n```\n") == ["x\nkubectl get pods\n"]


@pytest.mark.parametrize("page", [*PAGES, TUTORIAL])
def test_commands_are_of_a_known_kind_and_can_be_read_by_a_shell(page: str) -> None:
    """Quotes that do not match would be found by a user first."""
    found = blocks(page)
    assert found
    for block in found:
        assert block.kind in KINDS
        done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

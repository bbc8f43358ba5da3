"""Runbooks without a system: each command is known to the tests, and nothing is left to a placeholder by mistake."""

from __future__ import annotations

import subprocess

import pytest

from tests.runbooks.guides import GUIDES, PAGES, blocks

KINDS = {"sh", "sh copy", "sh cluster"}


def test_every_page_with_commands_is_a_runbook_of_the_tests() -> None:
    """A page that is added with commands must be run."""
    assert {path.stem for path in GUIDES.glob("*.md") if "```sh" in path.read_text()} == set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_commands_are_of_a_known_kind_and_can_be_read_by_a_shell(page: str) -> None:
    """Quotes that do not match would be found by a user first."""
    found = blocks(page)
    assert found
    for block in found:
        assert block.kind in KINDS
        done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

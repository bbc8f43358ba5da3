"""The page about the command line has each command's options, and no others."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.tidy.checkout import ROOT
from tests.waiting import BOUND

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text()
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", PAGE, re.MULTILINE))
COMMON = SECTIONS.pop("All commands")


def helped(*command: str) -> str:
    """The text of `--help`, as wide as it likes."""
    words = [sys.executable, "-m", "tidemark_cli", *command, "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND, check=True)
    return done.stdout


def on_page(section: str) -> set[str]:
    """The options in the first cells of a section's table."""
    return {
        option for line in section.splitlines() if line.startswith("|") for option in OPTION.findall(line.split("|")[1])
    }


def test_each_command_has_a_section() -> None:
    """The commands that the program lists, each under `## NAME`."""
    assert set(re.findall(r"^  ([a-z]+) {2,}\S", helped(), re.MULTILINE)) == set(SECTIONS)


@pytest.mark.parametrize("command", sorted(SECTIONS))
def test_options_are_those_of_help(command: str) -> None:
    """A new option has to be explained, and one that went must go from the page."""
    lines = [line for line in helped(command).splitlines() if line.startswith("  -")]
    described = {option for line in lines for option in OPTION.findall(line.split("  ")[1])}
    of_all = set() if command == "completion" else on_page(COMMON)
    assert described == on_page(SECTIONS[command]) | of_all | {"--help"}

"""Commands of all runbooks, asked of their programs: flags and kinds that are not there would be found by a user first.

block ──bash──► programs that only write down what they are called with ──► the real ones, `... --help`: cobra reads
                                                                            all flags before it helps
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.chart.render import helm
from tests.cli.usage import check_usage
from tests.runbooks.guides import OF_READERS, PAGES, Block, blocks
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.errors import KubectlFailed

PROGRAMS = ("kubectl", "helm", "tidemark", "psql")
WORD, CALL = "\x1f", "\x1e"
OF_OBJECTS = {"get", "wait", "delete", "patch", "describe", "annotate", "taint"}


def calls(block: Block, folder: Path) -> list[list[str]]:
    """Each command of the block, word for word, as the shell has read it."""
    folder.mkdir()
    programs, calls_file = folder / "bin", folder / "calls"
    programs.mkdir()
    calls_file.touch()
    for name in PROGRAMS:
        # with one write: both ends of a pipe run at once
        words = f"words=$(printf '%s{WORD}' {name} \"$@\")"
        (programs / name).write_text(f"#!/bin/sh\n{words}\nprintf '%s{CALL}' \"$words\" >>{calls_file}\n")
        (programs / name).chmod(0o755)
    environ = {**os.environ, **OF_READERS, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-eu", "-c", block.text], cwd=folder, env=environ, check=True, stdin=subprocess.DEVNULL)
    return [call.split(WORD)[:-1] for call in calls_file.read_text().split(CALL)[:-1]]


@pytest.fixture(scope="module")
def every_call(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The calls of all pages; files that somebody's own programs copy do not count."""
    folder = tmp_path_factory.mktemp("calls")
    found = [block for page in PAGES for block in blocks(page) if block.kind != "sh copy"]
    return [call for at, block in enumerate(found) for call in calls(block, folder / str(at))]


def called(every_call: list[list[str]], *program: str) -> Iterator[list[str]]:
    """The rest of the words, where a command begins with these."""
    return (call[len(program) :] for call in every_call if tuple(call[: len(program)]) == program)


def test_the_plugin_knows_its_options(every_call: list[list[str]]) -> None:
    """By either of its names; a misspelt one it does not."""
    found = [*called(every_call, "kubectl", "tidemark"), *called(every_call, "tidemark")]
    assert len(found) > 10
    for words in found:
        check_usage(words)
    with pytest.raises(click.UsageError, match="--service-acount"):
        check_usage(["query", "SELECT 1", "--service-acount", "a"])


@pytest.mark.cluster
def test_kubectl_knows_its_flags_and_the_server_the_kinds(
    every_call: list[list[str]], kinds_installed: ControlPlane
) -> None:
    """Ours among them; what is misspelt they do not."""
    found = [words for words in called(every_call, "kubectl") if words[0] != "tidemark"]
    assert len(found) > 20
    for words in found:
        kinds_installed.kubectl(*words, "--help")
    with pytest.raises(KubectlFailed, match="unknown flag"):
        kinds_installed.kubectl("get", "pods", "--namspace", "a", "--help")

    named = {kind for words in found if words[0] in OF_OBJECTS for kind in kinds_of(words)}
    assert {"dataflows", "computeinstances", "endpointslice", "nodes"} <= named
    assert named - known_words(kinds_installed) == set()
    assert "computereplicsa" not in known_words(kinds_installed)


def kinds_of(words: list[str]) -> list[str]:
    """`a,b NAME` and `a/NAME`; none where objects come from a file, or by the name of a loop."""
    reader = argparse.ArgumentParser(add_help=False)
    reader.add_argument("-n", "--namespace")
    reader.add_argument("-f")
    reader.add_argument("--type")
    rest = [word for word in reader.parse_known_args(words[1:])[1] if not word.startswith("-")]
    from_files = "-f" in words or "--local" in words
    return [] if from_files or not rest else [kind.partition("/")[0] for kind in rest[0].split(",")]


def known_words(plane: ControlPlane) -> set[str]:
    """The words that are known for a kind."""
    lines = [line.split() for line in plane.kubectl("api-resources", "--no-headers").splitlines()]
    return {word for plural, *_, kind in lines for word in (plural, kind.lower())}


@pytest.mark.slow
def test_helm_knows_its_flags(every_call: list[list[str]]) -> None:
    """The program is compiled by the first test that needs it."""
    found = list(called(every_call, "helm"))
    assert {words[0] for words in found} == {"install", "test", "upgrade", "uninstall"}
    for words in found:
        helm(*words, "--help")
    with pytest.raises(subprocess.CalledProcessError):
        helm("install", "tidemark", "helm/tidemark", "--create-namespce", "--help")

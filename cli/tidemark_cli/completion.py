"""Completion of command lines.

A shell completes `tidemark ...` with the script of `tidemark completion SHELL`, which calls the program with VARIABLE
in its environment. kubectl completes `kubectl tidemark ...` itself: it calls `kubectl_complete-tidemark` with the words
after `kubectl tidemark`, the last of which is incomplete, and reads candidates in cobra's format:

    query<TAB>Print the answer to a SELECT
    :4
"""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class, shell_complete

VARIABLE = "_TIDEMARK_COMPLETE"
SHELL_PROGRAM = "tidemark"
SHELLS = ("bash", "zsh", "fish")
_NO_FILES, _FILES = 4, 0
"""cobra's directives: whether the shell also offers names of files."""


def complete(command: click.Command, instruction: str) -> int:
    """Answers the call of a shell's script; `instruction` is the value of VARIABLE."""
    return shell_complete(command, {}, SHELL_PROGRAM, VARIABLE, instruction)


def script(command: click.Command, shell: str) -> str:
    """The script that a shell of SHELLS has to source."""
    found = get_completion_class(shell)
    assert found is not None, shell
    return found(command, {}, SHELL_PROGRAM, VARIABLE).source()


def kubectl_answer(command: click.Command, words: Sequence[str]) -> str:
    """The answer to kubectl. `words`: those after `kubectl tidemark`; the last one is incomplete, and may be empty."""
    *before, incomplete = words or [""]
    items = ShellComplete(command, {}, SHELL_PROGRAM, VARIABLE).get_completions(before, incomplete)
    lines = [_line(item) for item in items if item.type == "plain"]
    directive = _FILES if any(item.type != "plain" for item in items) else _NO_FILES
    return "".join(f"{line}\n" for line in [*lines, f":{directive}"])


def _line(item: CompletionItem) -> str:
    return f"{item.value}\t{item.help}" if item.help else str(item.value)

"""The lines of a file of sqllogictest, and the blocks that empty lines divide them into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LOOPS = ("loop", "foreach", "concurrentloop", "concurrentforeach")


@dataclass
class Lines:
    """The lines of a file, numbered as in the file."""

    lines: list[tuple[int, str]]
    at: int = 0

    @property
    def left(self) -> bool:
        return self.at < len(self.lines)

    def next(self) -> tuple[int, str]:
        self.at += 1
        return self.lines[self.at - 1]

    def block(self) -> list[str]:
        """The lines up to the next empty one."""
        found = []
        while self.left and self.lines[self.at][1].strip():
            found.append(self.next()[1])
        return found

    def more_of_a_message(self, begins_a_record: Callable[[str], bool]) -> list[str]:
        """Blocks that go on with a text of several paragraphs, which two empty lines or a record end."""
        found: list[str] = []
        while self.left:
            at, empty = self.at, 0
            while at < len(self.lines) and not self.lines[at][1].strip():
                at, empty = at + 1, empty + 1
            if empty > 1 or at == len(self.lines) or begins_a_record(self.lines[at][1]):
                break
            self.at = at
            found += self.block()
        return found

    def until(self, mark: str) -> list[tuple[int, str]]:
        """The lines up to the one that is `mark`, which is passed by too; loops inside are whole."""
        found, depth = [], 0
        while self.left:
            number, line = self.next()
            word = (line.split() or [""])[0].lower()
            if line.strip() == mark and not depth:
                break
            depth += (word in LOOPS) - (word == "endloop")
            found.append((number, line))
        return found

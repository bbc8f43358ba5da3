"""The glossary explains each word once, and each source that it names is in its table."""

from __future__ import annotations

import re
from collections import Counter

from tests.tidy.checkout import ROOT

TEXT = (ROOT / "docs" / "concepts.md").read_text()
ENTRY = re.compile(r"^### (.+)\n(.+(?:\n.+)*)", re.MULTILINE)
CITED = re.compile(r"\[([A-Z][\w ]*(?:, [A-Z][\w ]*)*)\](?!\()")


def test_each_term_has_one_entry() -> None:
    """Anchors do not tell capital letters apart, so neither may two terms."""
    terms = Counter(term.lower() for term, _ in ENTRY.findall(TEXT))
    assert len(terms) > 60
    assert {term: count for term, count in terms.items() if count > 1} == {}


def test_each_source_that_is_cited_is_listed() -> None:
    """A word in brackets that is no link names a row of the last table."""
    entries, _, sources = TEXT.partition("\n## Sources\n")
    listed = {name for row in re.findall(r"^\| ([^|]+) \|", sources, re.MULTILINE) for name in row.split(", ")}
    cited = {name for names in CITED.findall(entries) for name in names.split(", ")}
    assert cited
    assert sorted(cited - listed) == []

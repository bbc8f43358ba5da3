"""Links of pages lead to existing targets, and no file names the machine it was written on."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from tests.tidy.checkout import ROOT, files, name

FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]\n]*\]\(\s*<?([^)>\s]+)>?[^)\n]*\)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
MACHINE = re.compile(r"(?<![\w.$})/-])/(?:root|work|home/\w+|Users/\w+)(?![\w.-])")
MODULE = re.compile(r"(?<![\w/.<{*$~-])((?:[\w.-]+/)*[\w-]+\.py)\b(?![\w*])")
OUTSIDE = ("tests", "bench", "tools", "examples")
DECISION = re.compile(r"(\d{4})-[a-z0-9-]+\.md")


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub names them."""
    titles = re.findall(r"^#+ +(.+?) *#*$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page: Path, root: Path = ROOT) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if ELSEWHERE.match(link):
            continue
        target, _, anchor = unquote(link).partition("#")
        there = (page.parent / target).resolve() if target else page
        nowhere = not there.exists() or not there.is_relative_to(root)
        if nowhere or (anchor and there.suffix == ".md" and anchor not in headings(there)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("page", files("*.md"), ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    """To files of the project, and to headings in them."""
    assert broken(page) == []


def site_pages() -> list[str]:
    """The pages that mkdocs.yml has in its navigation, relative to docs/."""
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages: list[str] = []
    entries = list(navigation)
    while entries:
        for value in entries.pop().values():
            if isinstance(value, str):
                pages.append(value)
            else:
                entries += value
    return pages


def test_the_site_has_every_page() -> None:
    """Each page has one place in the navigation; decisions are listed on a page of their own."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in files("docs/*.md")}
    decisions = {page for page in pages if re.match(r"decisions/\d", page)}
    assert sorted(site_pages()) == sorted(pages - decisions)


def test_pages_of_the_site_link_to_the_site() -> None:
    """`make docs` refuses a link from a page to a file outside docs/."""
    outside = []
    for page in files("docs/*.md"):
        for link in LINK.findall(FENCE.sub("", page.read_text())):
            target = (page.parent / unquote(link).partition("#")[0]).resolve()
            if not ELSEWHERE.match(link) and not target.is_relative_to(ROOT / "docs"):
                outside.append(f"{name(page)}: {link}")
    assert outside == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    """The test above would pass on anything if it saw no links."""
    page = tmp_path / "page.md"
    page.write_text("# A page\n[a](no.md) [b](#a-page) [c](#b) [d](https://x.org) [e](..)\n```\n[f](no.md)\n```\n")
    assert broken(page, tmp_path) == ["no.md", "#b", ".."]


def test_a_module_that_a_text_names_is_there() -> None:
    """Pages, docstrings and comments name modules by their path, or by its end. A page may name a user's own file, too,
    without a folder."""
    ends = {"/".join(path.parts[at:]) for path in files("*.py") for at in range(len(path.parts))}
    product = (path for path in files("*.py") if name(path).split("/")[0] not in OUTSIDE)
    texts = {path: path.read_text() for path in (*files("*.md"), *product)}
    named = {(name(path), found) for path, text in texts.items() for found in MODULE.findall(text)}
    assert len(named) > 300
    missing = {(at, found) for at, found in named if found not in ends}
    assert {(at, found) for at, found in missing if "/" in found or not at.endswith(".md")} == set()


def test_the_page_of_benchmarks_lists_the_programs() -> None:
    """Each row is of a module that can be run, as `python -m bench.NAME`, and each such module has a row."""
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    listed = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
    paths = files("bench/*.py")
    programs = [p for p in paths if p.name == "__main__.py" or 'if __name__ == "__main__"' in p.read_text()]
    modules = [name(p).removesuffix(".py").removesuffix("/__main__").replace("/", ".") for p in programs]
    benches = {m.removeprefix("bench.") for m in modules if re.fullmatch(r"bench\.(parts\.)?\w+", m)}
    assert listed == benches


def test_no_file_names_a_folder_of_somebodys_machine() -> None:
    """Home directories and the like are nobody else's."""
    found = []
    for path in files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue  # not a text
        found += [f"{name(path)}: {match}" for match in MACHINE.findall(text)]
    assert found == []


def test_a_decision_has_a_number_of_its_own() -> None:
    """Each number is there once, and the title has it too."""
    titles: dict[str, str] = {}
    listed = (ROOT / "docs" / "decisions" / "README.md").read_text()
    for path in files("docs/decisions/[0-9]*.md"):
        assert f"]({path.name})" in listed, f"{path.name} is not in the list of decisions"
        match = DECISION.fullmatch(path.name)
        assert match, f"{path.name} is not called NNNN-title.md"
        number = match[1]
        assert number not in titles, f"{path.name} has the number of another"
        titles[number] = path.read_text().partition("\n")[0]
    assert {number: title for number, title in titles.items() if not title.startswith(f"# {number} ")} == {}


def test_limits_stay_a_table_that_is_read() -> None:
    """docs/limits.md has 4,500 words at most, and 40 in a row; limits of one kind of source are in its guide."""
    page = (ROOT / "docs" / "limits.md").read_text()
    rows = [line.replace("|", " ").split() for line in page.splitlines() if line.startswith("|")]
    assert [" ".join(row) for row in rows if len(row) > 40] == []
    assert len(page.split()) <= 4_500


def test_the_changelog_has_an_unreleased_section() -> None:
    """The changelog has a place for what is not released yet."""
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text().replace("[", "").replace("]", "")

"""The page of the rooms tells the layers that import-linter holds."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.tidy.checkout import ROOT

PAGE = (ROOT / "docs" / "explanation" / "rooms.md").read_text()
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
LAYERS = {c["containers"][0]: c["layers"] for c in CONTRACTS if c["type"] == "layers"}
LABEL = re.compile(r"(?:its )?`(\w+)`")


def layers_of_page() -> dict[str, list[set[str]]]:
    """By container, the layers of the page's table from the top down, each as its names."""
    found, package = {}, ""
    for line in PAGE.partition("## Rooms, from the top layer down\n")[2].partition("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 2 and (label := LABEL.match(cells[0])):
            package = package if cells[0].startswith("its") else label[1]
            container = f"{package}.{label[1]}" if cells[0].startswith("its") else package
            found[container] = [set(re.findall(r"`(\w+)`", layer)) for layer in cells[1].split("·")]
    return found


def layers_of_contract(container: str) -> list[set[str]]:
    """The contract's layers from the top down, each as its names."""
    return [set(re.split(r"\s*[|:]\s*", layer)) for layer in LAYERS[container]]


@pytest.mark.parametrize("container", layers_of_page())
def test_each_layer_of_the_page_is_held(container: str) -> None:
    """Names that the contract has are in its order, and those of one layer are together there, too."""
    order = {name: at for at, layer in enumerate(layers_of_contract(container)) for name in layer}
    places = [{order[name] for name in layer if name in order} for layer in layers_of_page()[container]]
    assert [place for place in places if len(place) > 1] == []
    flat = [at for place in places for at in place]
    assert flat == sorted(flat)


@pytest.mark.parametrize("container", layers_of_page())
def test_each_room_is_on_the_page(container: str) -> None:
    """A folder that the contract names has a place in the table."""
    (folder,) = (at.parent for at in ROOT.glob(f"*/{container.replace('.', '/')}/__init__.py"))
    names = set().union(*layers_of_contract(container))
    rooms = {name for name in names if (folder / name / "__init__.py").exists()}
    assert rooms
    assert sorted(rooms - set().union(*layers_of_page()[container])) == []


def test_the_page_tells_of_all_packages() -> None:
    assert len(layers_of_page()) >= 10
    assert {c for c in LAYERS if "." not in c} - layers_of_page().keys() == set()

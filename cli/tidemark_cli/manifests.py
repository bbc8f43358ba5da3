"""Objects in files of YAML or JSON, as `kubectl apply -f` reads them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tidemark_cli.errors import CliError
from tidemark_protocol.explained_plan import MANIFEST_CHARACTERS

_GROUP, _KIND = "compute.tidemark.dev/", "Dataflow"
_SUFFIXES = (".json", ".yaml", ".yml")
STDIN = Path("-")


@dataclass(frozen=True)
class DataflowManifest:
    """A Dataflow of a file. `namespace`: empty: the file names none. `json`: the whole object."""

    name: str
    namespace: str
    json: str


def read_dataflows(places: Iterable[Path]) -> list[DataflowManifest]:
    """The Dataflows of files, of the files of folders, or of standard input (`-`), in their order.

    Raises:
        CliError: a file cannot be read, or no file has a Dataflow.
    """
    given = list(places)
    found = [manifest for place in given for path in _files(place) for manifest in _dataflows(path)]
    if not found:
        raise CliError(f"there is no Dataflow in {', '.join(map(str, given))}")
    return found


def in_namespace(
    manifests: Iterable[DataflowManifest], asked: str | None, default: str
) -> dict[str, list[DataflowManifest]]:
    """The manifests by their namespaces. `asked`: -n; `default`: the context's.

    Raises:
        CliError: a manifest names another namespace than -n does.
    """
    found = dict[str, list[DataflowManifest]]()
    for manifest in manifests:
        if asked and manifest.namespace not in ("", asked):
            text = f"Dataflow {manifest.name} is of namespace {manifest.namespace}, not of {asked}"
            raise CliError(f"{text}: leave out -n, or give --namespace={manifest.namespace}")
        found.setdefault(manifest.namespace or asked or default, []).append(manifest)
    return found


def _files(place: Path) -> list[Path]:
    if place == STDIN or not place.is_dir():
        return [place]
    return sorted(path for path in place.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def _dataflows(path: Path) -> Iterator[DataflowManifest]:
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
        documents = list(yaml.load_all(text, Loader=_Loader))
        bodies = [body for document in documents for body in _objects(document)]
    except (OSError, TypeError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise CliError(f"{path} cannot be read: {error}") from None
    for body in bodies:
        if body.get("kind") != _KIND or not str(body.get("apiVersion")).startswith(_GROUP):
            continue
        metadata = body.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
            raise CliError(f"a Dataflow of {path} has no metadata.name")
        try:
            yield DataflowManifest(metadata["name"], str(metadata.get("namespace") or ""), _json(body))
        except (TypeError, ValueError, RecursionError) as error:
            raise CliError(f"Dataflow {metadata['name']} of {path} has no form in JSON: {error}") from None


def _json(body: dict[str, Any]) -> str:
    """The object in JSON, as far as MANIFEST_CHARACTERS: a few lines of YAML with aliases may mean gigabytes. Raises
    TypeError, ValueError, RecursionError: the object has no such form, or is too long."""
    pieces, characters = list[str](), 0
    for piece in json.JSONEncoder().iterencode(body):
        pieces.append(piece)
        characters += len(piece)
        if characters > MANIFEST_CHARACTERS:
            raise ValueError(f"it has more than {MANIFEST_CHARACTERS} characters")
    return "".join(pieces)


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    """The object of a document, or those of a list."""
    if not isinstance(document, dict):
        return
    if document.get("kind") == "List":
        for item in document.get("items") or ():
            yield from _objects(item)
    else:
        yield document


class _Loader(yaml.SafeLoader):
    """Times stay text, as kubectl reads them."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

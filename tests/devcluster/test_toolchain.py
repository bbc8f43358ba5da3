"""The Go toolchain of the control plane: the one on PATH, one from the cache, or a clear refusal."""

import io
from pathlib import Path

import pytest

from tidemark_devcluster.errors import ToolchainMissing
from tidemark_devcluster.programs.cache import BuildCache
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_devcluster.programs.toolchain import GO_BIN_NAME, environment, find_go, parse_version


def a_go(folder: Path, version: str) -> Path:
    """A Go command that answers `go env GOVERSION` with `version`."""
    folder.mkdir(parents=True, exist_ok=True)
    executable = folder / "go"
    executable.write_text(f"#!/bin/sh\n[ \"$*\" = 'env GOVERSION' ] && echo {version}\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8\n", (1, 26)), ("go1.24", (1, 24)), ("go1.27rc1", (1, 27)), ("devel go1.28-abc", None), ("", None)],
)
def test_a_version_is_read_from_the_output_of_go(text: str, version: tuple[int, int] | None) -> None:
    """Releases and candidates have a version; development builds have none that can be compared."""
    assert parse_version(text) == version


def test_a_go_on_path_that_is_new_enough_is_used(tmp_path: Path) -> None:
    """Nothing is installed where PATH has what is needed."""
    executable = a_go(tmp_path / "bin", "go1.26.8")
    environ = {"PATH": str(tmp_path / "bin")}
    go = find_go((1, 24), BuildCache(tmp_path / "cache"), environ, ProgressOutput(io.StringIO()))
    assert (go.executable, go.version) == (executable, (1, 26))
    assert not (tmp_path / "cache").exists()


def test_a_go_on_path_that_is_too_old_gives_way_to_the_one_in_the_cache(tmp_path: Path) -> None:
    """The program that an earlier build installed is found again."""
    a_go(tmp_path / "bin", "go1.19")
    cache = BuildCache(tmp_path / "cache")
    cached = a_go(cache.toolchain(GO_BIN_NAME) / "go" / "bin", "go1.26.6")
    go = find_go((1, 24), cache, {"PATH": str(tmp_path / "bin")}, ProgressOutput(io.StringIO()))
    assert go.executable == cached


@pytest.mark.parametrize(("version", "message"), [("go1.19", "is 1.19"), (None, "PATH has no go")])
def test_no_go_at_all_is_refused_in_one_line_with_the_remedy(tmp_path: Path, version: str | None, message: str) -> None:
    """Without a Go and without a registry: what is missing, why, and what to install. Nothing half is left."""
    if version is not None:
        a_go(tmp_path / "bin", version)
    environ = {"PATH": str(tmp_path / "bin"), "PIP_NO_INDEX": "1"}
    with pytest.raises(ToolchainMissing) as refused:
        find_go((1, 24), BuildCache(tmp_path / "cache"), environ, ProgressOutput(io.StringIO()))
    message = str(refused.value)
    assert message in message
    assert "install Go 1.24 or newer" in message
    assert "\n" not in message
    assert list((tmp_path / "cache" / "toolchain").iterdir()) == []


def test_the_callers_go_settings_do_not_change_the_build() -> None:
    """GOFLAGS and GOROOT of the user would miss the build cache or mix two toolchains; GOPROXY stays."""
    made = environment({"GOFLAGS": "-mod=mod", "GOROOT": "/old", "GOPROXY": "off", "GOTOOLCHAIN": "auto"})
    assert "GOFLAGS" not in made
    assert "GOROOT" not in made
    assert (made["GOPROXY"], made["GOTOOLCHAIN"]) == ("off", "local")

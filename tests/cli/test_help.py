"""Help, usage errors and the flags that select a kubeconfig, a context and a namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from tests.cli.usage import check_usage
from tidemark.errors import GatewayFailed
from tidemark.gateway.kubectl import Kubectl
from tidemark_cli.main import COMMANDS, PROGRAM, main, tidemark
from tidemark_devcluster.control_plane.control_plane import ControlPlane

CONTEXTS = {"one": "team-a", "two": "team-b", "none": None}
HEAVY = ("grpc", "pyarrow", "numpy", "rich", "google.protobuf", "yaml")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_repeats_their_own_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The list does not import them; each has examples and options of its own that it takes."""
    assert main([name, "--help"]) == 0
    help = capsys.readouterr().out

    assert help.startswith(COMMANDS[name])
    assert f"\nUsage:\n  {PROGRAM} {name} " in help
    assert "\nExamples:\n" in help


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_examples_of_help_can_be_called(name: str, tmp_path: Path) -> None:
    """Word for word, as a shell reads them; one that writes a file writes it into the test's folder."""
    command = tidemark.get_command(click.Context(tidemark), name)
    assert command is not None
    examples = [line for line in (command.epilog or "").splitlines() if line.startswith(f"{PROGRAM} ")]
    assert len(examples) > 1
    for line in examples:
        script = f'set -- {line}; shift 2; printf "%s\\n" "$@"'
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
        words = done.stdout.splitlines()
        assert words[0] == name
        check_usage(words)


def test_help_imports_nothing_that_takes_long() -> None:
    """Nor does the list of commands that a shell completes."""
    code = (
        "import sys\nfrom tidemark_cli.main import main\nmain(['--help'])\n"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["quer"], "No such command 'quer'"),
        (["query"], "Missing argument 'SQL'"),
        (["query", "SELECT 1", "--serverr", "a"], "No such option '--serverr'. Did you mean '--server'?"),
        (["query", "SELECT 1", "-o", "xml"], "'xml' is not one of 'table', 'json', 'csv', 'yaml'"),
        (["query", "SELECT 1", "--server", "a:1", "--gateway-file", "b"], "--gateway-file and --server exclude"),
        (["why", "a", "--token-file", "a", "--client-certificate"], "--token-file and --client-certificate exclude"),
        (["frontiers", "--certificate-authority", "a"], "--certificate-authority belongs to --server: give both"),
        (["copy", "a", "--to", "b"], "Missing option '--format'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_names_the_mistake_and_the_help(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2, nothing on standard output."""
    assert main(words) == 2
    out, err = capsys.readouterr()

    command = f"{PROGRAM} {words[0]}" if words[0] in COMMANDS else PROGRAM
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert err.endswith(f"\nSee '{command} --help' for usage.\n")


def test_the_program_alone_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The help is on standard error, as that of wrong usage is."""
    assert main([]) == 2
    assert "Available Commands:" in capsys.readouterr().err


@pytest.fixture
def kubeconfig(tmp_path: Path, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubeconfig of three contexts, and kubectl on the PATH."""
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})}
        for name, namespace in CONTEXTS.items()
    ]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": contexts,
        "current-context": "one",
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("PATH", str(control_plane.layout.kubectl.parent), prepend=os.pathsep)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "another"))
    return path


@pytest.mark.cluster
def test_the_namespace_is_the_contexts(kubeconfig: Path) -> None:
    """The namespace is kubectl's; a context that does not exist is an error."""
    assert Kubectl(kubeconfig).namespace() == "team-a"
    assert Kubectl(kubeconfig, "two").namespace() == "team-b"
    assert Kubectl(kubeconfig, "none").namespace() == "default"
    assert Kubectl().namespace() == "default"
    with pytest.raises(GatewayFailed, match=r"--context three: .*three"):
        Kubectl(kubeconfig, "three").namespace()

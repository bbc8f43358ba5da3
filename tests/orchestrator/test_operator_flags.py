"""How an operator is told what runs its replicas."""

from __future__ import annotations

import pytest

from tidemark_operator.options import parse
from tidemark_operator.orchestrator.kubernetes.settings import Settings

PODS = ["--state-dir", "s", "--orchestrator", "kubernetes"]


def test_pods_have_what_the_command_line_says() -> None:
    """And the rest by default."""
    least = parse([*PODS, "--replica-image", "i", "--planner", "p:1"]).pods
    most = parse(
        [
            *PODS,
            *("--planner", "p:1", "--replica-image", "i", "--replica-image-pull-policy", "Always"),
            *("--replica-image-pull-secret", "a", "--replica-image-pull-secret", "b"),
            *("--driver-service-account", "d", "--executor-service-account", "e"),
        ]
    ).pods

    assert least == Settings("i")
    assert most == Settings("i", "Always", ("a", "b"), "d", "e")
    assert parse(["--state-dir", "s"]).pods is None


@pytest.mark.parametrize("missing", [["--replica-image", "i"], ["--planner", "p:1"]])
def test_pods_need_an_image_and_a_planner(missing: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The operator's own pod has neither a JVM nor replicas beside it."""
    with pytest.raises(SystemExit):
        parse([*PODS, *missing])

    assert "--orchestrator kubernetes needs --replica-image" in capsys.readouterr().err

"""The operator's flags that choose an orchestrator."""

from __future__ import annotations

import pytest

from tests.orchestrator.pods import large
from tidemark_operator.options import parse
from tidemark_operator.orchestrator.kubernetes import driver, executors
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings

PODS = ["--state-dir", "s", "--orchestrator", "kubernetes"]


def test_pods_have_the_settings_of_the_command_line() -> None:
    """And the rest by default."""
    least = parse([*PODS, "--replica-image", "i", "--planner", "p:1"]).pods
    most = parse(
        [
            *PODS,
            *("--planner", "p:1", "--replica-image", "i", "--replica-image-pull-policy", "Always"),
            *("--replica-image-pull-secret", "a", "--replica-image-pull-secret", "b"),
            *("--driver-service-account", "d", "--executor-service-account", "e", "--replica-user", "1000650000"),
        ]
    ).pods

    assert least == KubernetesSettings("i")
    assert most == KubernetesSettings("i", "Always", ("a", "b"), "d", "e", 1000650000)
    assert least.user == 65532
    assert parse(["--state-dir", "s"]).pods is None


@pytest.mark.parametrize("missing", [["--replica-image", "i"], ["--planner", "p:1"]])
def test_pods_need_an_image_and_a_planner(missing: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The operator's own pod has neither a JVM nor replicas beside it."""
    with pytest.raises(SystemExit):
        parse([*PODS, *missing])

    assert "--orchestrator kubernetes needs --replica-image" in capsys.readouterr().err


def test_the_cluster_may_choose_the_user_of_pods_but_not_root(capsys: pytest.CaptureFixture[str]) -> None:
    """Driver and executors alike."""
    chosen = parse([*PODS, "--planner", "p:1", "--replica-image", "i", "--replica-user", "none"]).pods
    assert chosen is not None
    for made in (driver.pod_template(large(), chosen), executors.pod_template(large(), chosen)):
        assert made["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for user in ("0", "root"):
        with pytest.raises(SystemExit):
            parse([*PODS, "--planner", "p:1", "--replica-image", "i", "--replica-user", user])
        assert f"'{user}' is not a user id: give a number from 1 on" in capsys.readouterr().err

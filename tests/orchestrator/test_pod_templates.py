"""Manifests of replicas as they were reviewed, and what must hold for all of them.

`TIDEMARK_WRITE_FIXTURES=1` rewrites the files that they are compared with.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.orchestrator.pods import LARGE, SETTINGS, large, small
from tidemark_operator.orchestrator.interface import ICEBERG, SOURCE_SECRETS, Owner
from tidemark_operator.orchestrator.kubernetes import executors, templates
from tidemark_operator.orchestrator.kubernetes.names import ReplicaShape, member
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings
from tidemark_protocol.forbidden_source_folders import FORBIDDEN_FOLDERS
from tidemark_replica.options import parse

FIXTURES = Path(__file__).parent / "manifests"
RESERVED = (*FORBIDDEN_FOLDERS, "/tmp", "/opt", "/usr")
"""Where the schema lets nobody mount a volume."""
CASES = {"small": small(), "large": large()}


def manifests(member: ReplicaShape) -> list[dict[str, Any]]:
    """All of a replica, the secret with a value that is none."""
    secret = templates.spark_secret(member, "uid-set", "spark-knows-it-by-this")
    return [
        templates.stateful_set(member, SETTINGS),
        *([secret] if secret else []),
        *templates.belongings(member, SETTINGS, "uid-set"),
        templates.disruption_budget("ns", Owner("default", "uid-default")),
    ]


def pods(member: ReplicaShape) -> list[dict[str, Any]]:
    """Specs of the driver's pod, and of executors'."""
    driver = templates.stateful_set(member, SETTINGS)["spec"]["template"]["spec"]
    return [driver, executors.pod_template(member, SETTINGS)["spec"]]


@pytest.mark.parametrize("case", CASES)
def test_manifests_are_those_that_were_reviewed(case: str) -> None:
    """A change of the templates is seen in these files."""
    file = FIXTURES / f"{case}.yaml"
    # through JSON: what is meant twice is written twice
    bodies = json.loads(json.dumps(manifests(CASES[case])))
    text = yaml.safe_dump_all(bodies, sort_keys=False, width=120)
    if os.environ.get("TIDEMARK_WRITE_FIXTURES"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)

    assert text == file.read_text()


@pytest.mark.parametrize("case", CASES)
def test_volumes_and_mounts_fit_together(case: str) -> None:
    """Each mount has its volume, each volume a mount, and no two one path; what is kept on disk has an end."""
    for spec in pods(CASES[case]):
        (container,) = spec["containers"]
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]

        assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in spec["volumes"]}
        assert len(paths) == len(set(paths))
        assert all(v["emptyDir"].get("sizeLimit") for v in spec["volumes"] if "emptyDir" in v)
        ours = [p for m, p in zip(container["volumeMounts"], paths, strict=True) if not m["name"].startswith("volume-")]
        assert all(any(path == r or path.startswith(f"{r}/") for r in RESERVED) for path in ours)


def test_only_drivers_of_executors_have_a_token() -> None:
    """And no secret stands in any spec."""
    assert [spec["automountServiceAccountToken"] for spec in pods(small())] == [False, False]
    assert [spec["automountServiceAccountToken"] for spec in pods(large())] == [True, False]
    without = [body for body in manifests(large()) if body["kind"] != "Secret"]
    assert "spark-knows-it-by-this" not in json.dumps(without)


@pytest.mark.parametrize("case", CASES)
def test_the_replica_parses_the_command_line_of_its_pod(case: str) -> None:
    """The program's own reading of the arguments; Kubernetes fills in what is of the pod."""
    (container,) = pods(CASES[case])[0]["containers"]
    program, *arguments = container["args"]
    fields = {each["name"] for each in container["env"] if "valueFrom" in each}
    options = parse(arguments)
    named = {name for _, value in options.spark_conf for name in re.findall(r"\$\((\w+)\)", value)}

    assert program == "tidemark_replica"
    assert options.tls is not None
    assert dict(options.spark_conf) == executors.spark_conf(CASES[case], SETTINGS)
    assert named <= fields
    assert options.master == ("local[2]" if case == "small" else executors.MASTER)


def test_drivers_alone_know_the_iceberg_catalogue() -> None:
    with_it = replace(LARGE, pod=replace(LARGE.pod, iceberg='{"uri": "https://c"}'))
    driver, executor = pods(member(with_it, SETTINGS))
    environment = {each["name"]: each.get("value") for each in driver["containers"][0]["env"]}
    assert environment[ICEBERG] == '{"uri": "https://c"}'
    assert ICEBERG not in json.dumps(executor)


def test_drivers_alone_mount_the_secrets_of_sources() -> None:
    """Each in a folder of its name; a pod starts without them, and the operator needs no right to read them."""
    names = ("brokers.tls", "orders-db")
    driver, executor = pods(member(replace(LARGE, pod=replace(LARGE.pod, source_secrets=names)), SETTINGS))
    (container,) = driver["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in driver["volumes"]}

    assert environment[SOURCE_SECRETS] == "/etc/tidemark/source-secrets"
    for number, name in enumerate(names):
        volume = f"source-secret-{number}"
        path = f"/etc/tidemark/source-secrets/{name}"
        assert volumes[volume]["secret"] == {"secretName": name, "defaultMode": 0o440, "optional": True}
        assert mounts[volume] == {"name": volume, "mountPath": path, "readOnly": True}
    assert not any(name in json.dumps(executor) for name in ("source-secret", SOURCE_SECRETS, *names))


def test_without_executors_spark_is_told_nothing() -> None:
    """And there is no config map, no secret and no port for them."""
    assert executors.spark_conf(small(), SETTINGS) == {}
    assert [body["kind"] for body in manifests(small())] == ["StatefulSet", "Service", "PodDisruptionBudget"]


def test_another_template_of_executors_is_another_config_map() -> None:
    """A later version of the operator, or another setting: the driver that runs keeps the one that it was started with,
    and the next pod has the new one."""

    def template(settings: KubernetesSettings) -> tuple[str, str]:
        """The template that there is, and the one that the driver's pod asks for."""
        (there,) = [body for body in templates.belongings(large(), settings, "u") if body["kind"] == "ConfigMap"]
        spec = templates.stateful_set(large(), settings)["spec"]["template"]["spec"]
        (asked,) = [volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume]
        return there["metadata"]["name"], asked

    before, after = template(SETTINGS), template(replace(SETTINGS, executor_account="another"))

    assert before[0] == before[1]
    assert after[0] == after[1]
    assert before != after
    assert template(replace(SETTINGS, pull_policy="Always")) == before


def test_an_executors_memory_is_divided_without_a_remainder() -> None:
    """The limit of its pod is the sum of the two."""
    conf = executors.spark_conf(large(), SETTINGS)

    assert (conf["spark.executor.memory"], conf["spark.executor.memoryOverhead"]) == ("3072m", "3072m")
    assert conf["spark.kubernetes.executor.request.cores"] == "1"


def test_selectors_choose_one_driver_and_budgets_all_of_an_instance() -> None:
    """Executors have the labels of their replica too, but for the role."""
    one, two = small(), large()
    labels = templates.stateful_set(one, SETTINGS)["spec"]["template"]["metadata"]["labels"]
    executor = executors.pod_template(one, SETTINGS)["metadata"]["labels"]
    budget = templates.disruption_budget("ns", Owner("default", "uid-default"))["spec"]["selector"]["matchLabels"]

    def chosen(selector: dict[str, str], by: dict[str, str]) -> bool:
        return selector.items() <= by.items()

    assert chosen(one.selector, labels)
    assert not chosen(one.selector, executor)
    assert not chosen(two.selector, labels)
    assert chosen(budget, labels)
    assert not chosen(budget, executor)

"""The printed columns and names in the CustomResourceDefinitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

CRDS = Path(__file__).parents[2] / "crds"


def spec_of(file: str) -> dict[str, Any]:
    (version,) = yaml.safe_load((CRDS / file).read_text())["spec"]["versions"]
    properties: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return properties


def test_the_instances_read_policy_is_a_default_for_those_alone_that_have_one() -> None:
    """A DataSource has no field of its own, so nothing is its default."""
    instance = spec_of("computeinstances.yaml")["readPolicy"]["description"]

    assert "readPolicy" in spec_of("dataflows.yaml")
    assert "readPolicy" not in spec_of("datasources.yaml")
    assert "default" not in instance
    assert "tables of all DataSources" in instance

"""Test deploy/kubernetes: every object fits its schema, and speaks of things that there are."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import typer
import yaml
from ray.scripts.scripts import start as start_node

from fullrank_fleet.cluster import node_environment, worker_environment
from fullrank_service.commands.serve import serve

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "deploy" / "kubernetes" / "fleet.yaml"
KUBERNETES = "1.37"

TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
GROUP = {
    "rayStartParams": {"type": "object", "additionalProperties": TEXT},
    "template": {"type": "object"},
}
# The part of ray.io/v1 RayCluster that the manifest uses, written from its API reference; KubeRay publishes its schema
# in no package. The templates of pods are checked by that of Kubernetes.
RAY_CLUSTER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["rayVersion", "headGroupSpec", "workerGroupSpecs", "gcsFaultToleranceOptions"],
    "properties": {
        "rayVersion": TEXT,
        "gcsFaultToleranceOptions": {
            "type": "object",
            "additionalProperties": False,
            "required": ["redisAddress"],
            "properties": {"redisAddress": TEXT, "redisPassword": {"type": "object"}},
        },
        "headGroupSpec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["rayStartParams", "template"],
            "properties": GROUP,
        },
        "workerGroupSpecs": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["groupName", "minReplicas", "maxReplicas", "template"],
                "properties": {
                    **GROUP,
                    "groupName": TEXT,
                    "replicas": COUNT,
                    "minReplicas": COUNT,
                    "maxReplicas": COUNT,
                },
            },
        },
    },
}


def check(item: dict[str, Any]) -> None:
    """Raise ValidationError unless an object fits its schema."""
    if item["kind"] != "RayCluster":
        kubernetes_validate.validate(item, KUBERNETES, strict=True)
        return
    jsonschema.validate(item["spec"], RAY_CLUSTER)
    for group in groups_of(item):
        pod = {"apiVersion": "v1", "kind": "Pod", **group["template"]}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def groups_of(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]


@pytest.fixture(scope="module")
def items() -> dict[tuple[str, str], dict[str, Any]]:
    """The objects by kind and name."""
    found = list(yaml.safe_load_all(MANIFEST.read_text()))
    named = {(item["kind"], item["metadata"]["name"]): item for item in found}
    assert len(named) == len(found)
    return named


def pods_of(items: dict[tuple[str, str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the template of every pod."""
    cluster = items["RayCluster", "fullrank"]
    found = {name: item["spec"] for (kind, name), item in items.items() if kind == "StatefulSet"}
    head, shards = groups_of(cluster)
    found |= {"head": head, "shards": shards}
    return {name: spec["template"] for name, spec in found.items()}


def test_every_object_fits_its_schema(items: dict[tuple[str, str], dict[str, Any]]) -> None:
    for item in items.values():
        check(item)


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "gcsFaultToleranceOptions", "redisAdress"),
        ("spec", "headGroupSpec", "replicas"),
        ("spec", "workerGroupSpecs", 0, "rayStartParams", "num-cpus"),
        ("spec", "workerGroupSpecs", 0, "template", "spec", "container"),
    ],
)
def test_the_schema_refuses_what_is_wrong(
    path: tuple[Any, ...], items: dict[tuple[str, str], dict[str, Any]]
) -> None:
    broken = copy.deepcopy(items["RayCluster", "fullrank"])
    inside = broken
    for part in path[:-1]:
        inside = inside[part]
    inside[path[-1]] = 3
    with pytest.raises(jsonschema.ValidationError):
        check(broken)


def test_nodes_have_the_environment_of_a_fleet(
    items: dict[tuple[str, str], dict[str, Any]],
) -> None:
    given = items["ConfigMap", "fullrank"]["data"]
    expected = worker_environment() | node_environment()
    # Accelerators are looked for where drivers warn about them, which these pods do not have.
    del expected["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"]
    assert expected.items() <= given.items()
    for name in ("head", "shards", "fullrank-router"):
        [container] = pods_of(items)[name]["spec"]["containers"]
        assert {"configMapRef": {"name": "fullrank"}} in container["envFrom"]
        assert [entry["name"] for entry in container["env"]] == ["RAY_AUTH_MODE", "RAY_AUTH_TOKEN"]
        shm = {"name": "shm", "mountPath": "/dev/shm"}
        assert shm in container["volumeMounts"]
        [volume] = [v for v in pods_of(items)[name]["spec"]["volumes"] if v["name"] == "shm"]
        assert volume["emptyDir"] == {"medium": "Memory", "sizeLimit": "256Mi"}
        assert container["image"] == "fullrank-fleet"


def test_names_lead_somewhere(items: dict[tuple[str, str], dict[str, Any]]) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods_of(items).values()]
    # KubeRay labels the pods of a cluster itself.
    labels.append({"ray.io/cluster": "fullrank", "ray.io/group": "shards"})
    selectors = []
    for (kind, _), item in items.items():
        if kind in ("Service", "StatefulSet", "PodDisruptionBudget"):
            selectors.append(item["spec"]["selector"])
        elif kind == "NetworkPolicy":
            selectors.append(item["spec"]["podSelector"])
    assert len(selectors) == 9
    for selector in selectors:
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= own.items() for own in labels), wanted
    services = {name for kind, name in items if kind == "Service"}
    # KubeRay makes the service of the head.
    services.add("fullrank-head-svc")
    hosts = re.findall(r"\b(fullrank-[a-z-]+):6379", MANIFEST.read_text())
    assert set(hosts) == {"fullrank-redis", "fullrank-head-svc"}
    assert set(hosts) <= services
    assert items["RayCluster", "fullrank"]["spec"]["rayVersion"] == pinned_ray()


def pinned_ray() -> str:
    """Return the version of Ray in the image."""
    pins = (ROOT / "requirements" / "fleet.txt").read_text()
    [version] = re.findall(r"^ray==(\S+)", pins, re.MULTILINE)
    return str(version)


def test_the_router_is_started_by_options_that_there_are(
    items: dict[tuple[str, str], dict[str, Any]],
) -> None:
    [container] = pods_of(items)["fullrank-router"]["spec"]["containers"]
    [line] = re.findall(r"exec fullrank serve (.*)", container["args"][0])
    assert set(re.findall(r"--[a-z]+", line)) <= options_of(serve)
    [start] = re.findall(r"ray start (.*)", container["args"][0])
    known = {name for option in start_node.params for name in option.opts}
    assert set(re.findall(r"--[a-z-]+", start)) <= known
    for group in groups_of(items["RayCluster", "fullrank"]):
        assert {f"--{name}" for name in group["rayStartParams"]} <= known


def options_of(command: Callable[..., object]) -> set[str]:
    """Return the options of a command."""
    app = typer.Typer()
    app.command()(command)
    return {name for option in typer.main.get_command(app).params for name in option.opts}


def test_every_object_is_for_one_fleet_only(items: dict[tuple[str, str], dict[str, Any]]) -> None:
    closed = items["NetworkPolicy", "fullrank"]["spec"]
    assert closed["podSelector"] == closed["ingress"][0]["from"][0]["podSelector"]
    for pod in pods_of(items).values():
        assert closed["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    opened = items["NetworkPolicy", "fullrank-http"]["spec"]["ingress"]
    assert opened == [{"ports": [{"protocol": "TCP", "port": 8000}]}]


def test_the_image_has_all_packages_of_a_fleet() -> None:
    text = (ROOT / "docker" / "fleet.Dockerfile").read_text()
    copied = " ".join(re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE)).split()
    assert all((ROOT / path).exists() for path in copied)
    assert {"fullrank", "service", "trainer", "fleet", "requirements/fleet.txt"} <= set(copied)
    for name, value in worker_environment().items():
        if name != "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO":
            assert f"{name}={value}" in text

"""Test deploy/kubernetes: every object fits its schema, and speaks of things that there are."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import typer
import yaml
from ray.scripts.scripts import start as start_node

from fullrank import __version__
from fullrank.cli import build_app
from fullrank_fleet.cluster import node_environment, worker_environment
from fullrank_service.base.settings import Settings
from fullrank_service.commands.serve import serve
from fullrank_service.process.worker import FINISH_S

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


def test_the_image_has_the_environment_of_a_fleet() -> None:
    text = (ROOT / "Dockerfile").read_text()
    [image] = re.findall(r"^FROM base AS fleet\n(.*?)^FROM", text, re.MULTILINE | re.DOTALL)
    for name, value in worker_environment().items():
        if name != "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO":
            assert f"{name}={value}" in image


# One service: deploy/kubernetes/service.

SERVICE = ROOT / "deploy" / "kubernetes" / "service"
# The part of monitoring.coreos.com/v1 ServiceMonitor that is used, from its API reference.
MONITOR = {
    "type": "object",
    "additionalProperties": False,
    "required": ["selector", "endpoints"],
    "properties": {
        "jobLabel": TEXT,
        "selector": {"type": "object"},
        "endpoints": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"port": TEXT, "path": TEXT, "interval": TEXT},
            },
        },
    },
}


@pytest.fixture(scope="module")
def single() -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of one service, by kind and name."""
    named = yaml.safe_load((SERVICE / "kustomization.yaml").read_text())["resources"]
    assert {"kustomization.yaml", *named} == {path.name for path in SERVICE.iterdir()}
    found = [item for name in named for item in yaml.safe_load_all((SERVICE / name).read_text())]
    return {(item["kind"], item["metadata"]["name"]): item for item in found}


def single_pods(items: dict[tuple[str, str], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    jobs = {
        name: i["spec"]["jobTemplate"] for (kind, name), i in items.items() if kind == "CronJob"
    }
    jobs["fullrank"] = items["StatefulSet", "fullrank"]
    return {name: item["spec"]["template"] for name, item in jobs.items()}


def test_the_objects_of_one_service_fit_their_schemas(
    single: dict[tuple[str, str], dict[str, Any]],
) -> None:
    kinds = {kind for kind, _ in single}
    assert kinds > {"StatefulSet", "PodDisruptionBudget", "NetworkPolicy", "CronJob"}
    for (kind, _), item in single.items():
        if kind == "ServiceMonitor":
            jsonschema.validate(item["spec"], MONITOR)
        else:
            kubernetes_validate.validate(item, KUBERNETES, strict=True)


def test_the_names_in_one_service_lead_somewhere(
    single: dict[tuple[str, str], dict[str, Any]],
) -> None:
    pods = single_pods(single)
    labels = [pod["metadata"]["labels"] for pod in pods.values()]
    names = {own["app.kubernetes.io/name"] for own in labels}
    policy = single["NetworkPolicy", "fullrank-service"]["spec"]["podSelector"]
    assert set(policy["matchExpressions"][0]["values"]) == names == {"fullrank", "fullrank-job"}
    service = single["Service", "fullrank-service"]
    assert single["StatefulSet", "fullrank"]["spec"]["serviceName"] == "fullrank-service"
    [endpoint] = single["ServiceMonitor", "fullrank"]["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    selected = single["ServiceMonitor", "fullrank"]["spec"]["selector"]["matchLabels"]
    assert selected.items() <= service["metadata"]["labels"].items()
    for owner in (service["spec"]["selector"], selected):
        assert any(owner.items() <= own.items() for own in labels)
    known = {*Settings.model_fields, "model"}
    given = single["ConfigMap", "fullrank-service"]["data"]
    assert {name.removeprefix("FULLRANK_").lower() for name in given} <= known
    claims = {name for kind, name in single if kind == "PersistentVolumeClaim"}
    for pod in pods.values():
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        [container] = spec["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        assert mounts <= volumes.keys() | {"bundles"}
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            # The stateful set makes the claim of its first pod.
            assert claim in {None, "bundles-fullrank-0", *claims}
    images = yaml.safe_load((SERVICE / "kustomization.yaml").read_text())["images"]
    used = {pod["spec"]["containers"][0]["image"] for pod in pods.values()}
    assert {image["name"] for image in images} == used
    assert {image["newTag"] for image in images} == {__version__}


def test_a_pod_is_given_the_time_that_it_needs_to_stop(
    single: dict[tuple[str, str], dict[str, Any]],
) -> None:
    spec = single_pods(single)["fullrank"]["spec"]
    before = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > before + 2 * FINISH_S


def test_the_jobs_run_commands_that_there_are(
    single: dict[tuple[str, str], dict[str, Any]],
) -> None:
    commands = {command.name for command in build_app().registered_commands}
    for name in ("fullrank-loop", "fullrank-backup"):
        [container] = single_pods(single)[name]["spec"]["containers"]
        [command] = re.findall(r"fullrank (\w+) ", container["args"][2])
        assert command in commands


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_kustomize_builds_the_objects_of_one_service() -> None:
    done = subprocess.run(["kubectl", "kustomize", SERVICE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    built = [*yaml.safe_load_all(done.stdout)]
    assert all("app.kubernetes.io/part-of" in item["metadata"]["labels"] for item in built)

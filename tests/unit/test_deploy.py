"""What stands in deploy/ speaks of metrics and labels that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fullrank_service.base.metrics import Metrics
from fullrank_service.process.worker import FINISH_S

ALERTS = Path(__file__).resolve().parents[2] / "deploy" / "alerts.yaml"


def rules() -> dict[str, str]:
    """Expressions by what they are called."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    named = {rule.get("alert") or rule["record"]: rule["expr"] for rule in found}
    assert len(named) == len(found) > 10
    return named


def test_rules_name_metrics_and_labels_that_there_are() -> None:
    known = {name: set(labels) for name, (labels, _) in Metrics().described().items()}
    histograms = [name for name in known if name.endswith("_seconds")]
    known |= {f"{name}_bucket": known[name] | {"le"} for name in histograms}
    of_prometheus = {"job", "instance"}
    asked = 0
    for name, expression in rules().items():
        for metric, selector in re.findall(r"\b(fullrank_\w+)(?:\{([^}]*)\})?", expression):
            asked += 1
            assert metric in known, f"{name}: {metric}"
            labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selector))
            assert labels <= known[metric], f"{name}: {metric}{labels}"
        grouped = re.findall(r"\bby \(([^)]*)\)", expression)
        for label in (label.strip() for group in grouped for label in group.split(",")):
            metrics = re.findall(r"\bfullrank_\w+", expression)
            assert label in of_prometheus.union(*(known[metric] for metric in metrics)), (
                f"{name}: by {label}"
            )
        assert expression.count("(") == expression.count(")")
    assert asked > 15


def test_the_loop_works_on_the_bundles_of_the_service() -> None:
    root = ALERTS.parents[1]
    services = yaml.safe_load((ALERTS.parent / "compose.yaml").read_text())["services"]
    assert services["loop"]["volumes"] == services["service"]["volumes"]
    assert services["loop"]["profiles"] == ["loop"]
    for name in ("loop", "service"):
        text = (root / services[name]["build"]["dockerfile"]).read_text()
        assert "FULLRANK_BUNDLES=/bundles" in text
        copied = re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE)
        assert copied
        assert all((root / path).exists() for line in copied for path in line.split())
        packages = {"fullrank", "service"} | ({"trainer"} if name == "loop" else set())
        assert packages <= set(copied)


def test_docker_waits_for_the_service_to_stop() -> None:
    service = yaml.safe_load((ALERTS.parent / "compose.yaml").read_text())["services"]["service"]
    assert int(service["stop_grace_period"].removesuffix("s")) > 2 * FINISH_S


# What series are each minute, as promtool writes it; then minutes, and the alerts that are raised then.
SITUATIONS: dict[str, tuple[dict[str, str], dict[int, set[str]]]] = {
    "an outage": (
        {'up{job="fullrank", instance="a"}': "1x2 0x20"},
        {2: set(), 8: {"FullrankDown"}},
    ),
    "no target": ({}, {5: {"FullrankDown"}}),
    "two services, each converged": (
        {
            'up{job="fullrank", instance="a"}': "1x20",
            'fullrank_generation{job="fullrank", instance="a", worker="0"}': "7x20",
            'fullrank_generation{job="fullrank", instance="b", worker="0"}': "3x20",
        },
        {15: set()},
    ),
    "workers that differ": (
        {
            'up{job="fullrank", instance="a"}': "1x20",
            'fullrank_generation{job="fullrank", instance="a", worker="0"}': "7x20",
            'fullrank_generation{job="fullrank", instance="a", worker="1"}': "6x20",
        },
        {15: {"FullrankNotConverged"}},
    ),
    "a first error": (
        {
            'up{job="fullrank", instance="a"}': "1x30",
            'fullrank_requests_total{job="fullrank", instance="a", status="500"}': "_x6 1x30",
        },
        {5: set(), 7: {"FullrankFails"}, 20: set()},
    ),
    "a full disk": (
        {
            'up{job="fullrank", instance="a"}': "1x30",
            'fullrank_requests_total{job="fullrank", instance="a", status="507"}': "_x6 1x3 2x20",
            'fullrank_events_full{job="fullrank", instance="a", worker="0"}': "0x6 1x30",
        },
        {5: set(), 9: {"FullrankStorageFull", "FullrankEventsFull"}},
    ),
    "a worker that hung": (
        {
            'up{job="fullrank", instance="a"}': "1x40",
            'fullrank_worker_restarts_total{job="fullrank", instance="a", reason="hung"}': "0x11 1x30",
        },
        {10: set(), 14: {"FullrankWorkerRestarts"}, 30: set()},
    ),
    "a worker that reads no events": (
        {
            'up{job="fullrank", instance="a"}': "1x200",
            'fullrank_usage_read_timestamp_seconds{job="fullrank", instance="a", worker="0"}': "60x200",
            'fullrank_usage_read_timestamp_seconds{job="fullrank", instance="a", worker="1"}': "0x200",
        },
        {50: set(), 75: {"FullrankCompletionsStale"}},
    ),
    "a loop that ended": (
        {
            'up{job="fullrank", instance="a"}': "1x3000",
            'fullrank_loop_last_success_timestamp_seconds{job="fullrank", instance="a"}': "60x3000",
            'fullrank_loop_last_success_timestamp_seconds{job="fullrank", instance="b"}': "0x3000",
        },
        {1400: set(), 1460: {"FullrankLoopDead"}},
    ),
}


@pytest.mark.sweep
def test_alerts_are_raised_when_they_should_be(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (apt-get install prometheus)")
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    about = {r["alert"]: r["annotations"] for g in groups for r in g["rules"] if "alert" in r}

    def check(minute: int, alert: str, is_raised: bool, labels: dict[str, str]) -> dict[str, Any]:
        raised = {"exp_labels": labels, "exp_annotations": about[alert]}
        expected = [raised] if is_raised else []
        return {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": expected}

    tests = []
    for name, (series, minutes) in SITUATIONS.items():
        labels = {"job": "fullrank"} | ({"instance": "a"} if series else {})
        checks = [
            check(minute, alert, alert in raised, labels)
            for minute, raised in minutes.items()
            for alert in about
        ]
        given = [{"series": one, "values": values} for one, values in series.items()]
        tests.append(
            {"name": name, "interval": "1m", "input_series": given, "alert_rule_test": checks}
        )
    path = tmp_path / "tests.yaml"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

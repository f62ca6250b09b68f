"""What stands in deploy/ speaks of metrics and labels that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fullrank_service.base.metrics import Metrics
from fullrank_service.base.settings import Settings
from fullrank_service.process.worker import FINISH_S

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
ALERTS = DEPLOY / "alerts.yaml"
RUNBOOK = ROOT / "docs" / "guides" / "operate" / "when-it-breaks.md"


def rules() -> dict[str, str]:
    """Expressions by what they are called."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    found = [rule for group in groups for rule in group["rules"]]
    named = {rule.get("alert") or rule["record"]: rule["expr"] for rule in found}
    assert len(named) == len(found) > 10
    return named


def panels() -> dict[str, str]:
    """Expressions of the dashboard by the titles of their panels."""
    found = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())["panels"]
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in found
        for target in panel.get("targets", ())
    }


@pytest.mark.parametrize("expressions", [rules, panels])
def test_expressions_name_metrics_and_labels_that_there_are(
    expressions: Callable[[], dict[str, str]],
) -> None:
    known = {name: set(labels) for name, (labels, _) in Metrics().described().items()}
    histograms = [name for name in known if name.endswith("_seconds")]
    known |= {f"{name}_bucket": known[name] | {"le"} for name in histograms}
    of_prometheus = {"job", "instance"}
    asked = 0
    for name, expression in expressions().items():
        for metric, selector in re.findall(r"\b(fullrank_\w+)(?:\{([^}]*)\})?", expression):
            asked += 1
            assert metric in known, f"{name}: {metric}"
            labels = set(re.findall(r"(\w+)\s*(?:=~|!=|=)", selector))
            assert labels <= known[metric] | of_prometheus, f"{name}: {metric}{labels}"
        grouped = re.findall(r"\bby \(([^)]*)\)", expression)
        for label in (label.strip() for group in grouped for label in group.split(",")):
            metrics = re.findall(r"\bfullrank_\w+", expression)
            assert label in of_prometheus.union(*(known[metric] for metric in metrics)), (
                f"{name}: by {label}"
            )
        assert expression.count("(") == expression.count(")")
    assert asked > 15


def test_every_alert_has_a_severity_and_a_row_in_the_runbook() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    text = RUNBOOK.read_text()
    assert "\n## Alerts\n" in text
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        assert rule["labels"]["severity"] in ("page", "ticket")
        url = rule["annotations"]["runbook_url"]
        assert url.endswith(f"/blob/main/{RUNBOOK.relative_to(ROOT)}#alerts")
        assert f"| `{rule['alert']}` |" in text


def images() -> dict[str, str]:
    """The stages of the Dockerfile by name, each with those that it is made from."""
    stages: dict[str, str] = {}
    for part in re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.M)[1:]:
        source, name = re.findall(r"(\S+) AS (\S+)", part)[0]
        copied = {*re.findall(r"--from=(\S+)", part)}
        stages[name] = "".join(stages.get(own, "") for own in (source, *copied)) + part
    return stages


@pytest.mark.parametrize(
    ("image", "pins", "packages"),
    [
        ("service", "service", {"service"}),
        ("trainer", "trainer", {"trainer"}),
        ("loop", "service", {"service", "trainer"}),
        ("demo", "service", {"service", "trainer"}),
        ("fleet", "fleet", {"service", "trainer", "fleet"}),
    ],
)
def test_images_have_what_they_run(image: str, pins: str, packages: set[str]) -> None:
    text = images()[image]
    copied = " ".join(re.findall(r"^COPY (?!--)(.+) \S+$", text, re.M)).split()
    assert all((ROOT / path).exists() for path in copied)
    assert {"fullrank", *packages} == set(copied) & {"fullrank", "service", "trainer", "fleet"}
    assert re.findall(r"requirements/(\w+)\.txt -r requirements/build.txt", text) == [pins]
    assert "USER fullrank" in text
    # What is copied goes with the context.
    let = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert set(copied) <= let


def test_compose_names_images_and_files_that_there_are() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    tls = yaml.safe_load((DEPLOY / "tls" / "compose.yaml").read_text())["services"]
    assert services["loop"]["volumes"] == services["service"]["volumes"]
    assert services["loop"]["profiles"] == ["loop"]
    assert tls.keys() <= services.keys()
    for name in ("loop", "service"):
        build = services[name]["build"]
        assert (DEPLOY / build["context"] / "Dockerfile").exists()
        assert "FULLRANK_BUNDLES=/bundles" in images()[build["target"]]
    mounted = [v for one in (*services.values(), *tls.values()) for v in one.get("volumes", ())]
    files = [volume.split(":")[0] for volume in mounted if volume.startswith("./")]
    assert len(files) == 6
    assert all((DEPLOY / file).exists() for file in files)
    [scraped] = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"]
    assert scraped["job_name"] == "fullrank"
    assert scraped["static_configs"] == [{"targets": ["service:8000"]}]


def test_what_stops_the_service_waits_for_it() -> None:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["service"]
    assert int(service["stop_grace_period"].removesuffix("s")) > 2 * FINISH_S
    [unit] = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.M)
    assert int(unit) > 2 * FINISH_S


UNIT = DEPLOY / "fullrank.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_valid_and_hardened(tmp_path: Path) -> None:
    text = UNIT.read_text()
    [command] = re.findall(r"^ExecStart=(\S+) serve$", text, re.M)
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace(command, str(shutil.which("true"))))
    analyze = ["systemd-analyze", "--no-pager"]
    done = subprocess.run([*analyze, "verify", unit], capture_output=True, text=True)
    assert (done.returncode, unit.name in done.stderr) == (0, False), done.stderr
    safe = [*analyze, "security", "--offline=true", "--threshold=20", str(unit)]
    done = subprocess.run(safe, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    settings = re.findall(r"\b(FULLRANK_\w+)=", text)
    assert {name.removeprefix("FULLRANK_").lower() for name in settings} <= {*Settings.model_fields}


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
    "live documents near their limit": (
        {
            'up{job="fullrank", instance="a"}': "1x40",
            'fullrank_live_documents_share{job="fullrank", instance="a", worker="0"}': "0.5x5 0.9x30",
            'fullrank_live_memory_share{job="fullrank", instance="a", worker="0"}': "0.1x40",
        },
        {5: set(), 20: {"FullrankLiveDocumentsNearLimit"}},
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
    about = {r["alert"]: r for g in groups for r in g["rules"] if "alert" in r}

    def check(minute: int, alert: str, is_raised: bool, labels: dict[str, str]) -> dict[str, Any]:
        rule = about[alert]
        raised = {
            "exp_labels": labels | rule["labels"],
            "exp_annotations": rule["annotations"],
        }
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

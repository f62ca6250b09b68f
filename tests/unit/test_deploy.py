"""What stands in deploy/ speaks of metrics and labels that there are."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from service.telemetry.metrics import Metrics

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
            assert any(label in known[metric] for metric in metrics), f"{name}: by {label}"
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

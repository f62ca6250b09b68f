"""The tables of the capacity model in docs/scale.md, between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.fleet.inputs import DOCS

PAGE = DOCS / "scale.md"
_POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def tables(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables by name, in Markdown.

    Args:
        found: As ``capacity.model`` returns it.
    """
    return {
        "limits": _limits(found["one_machine"]),
        "inputs": _inputs(found["inputs"]),
        "recorded": _recorded(found["recorded"]),
        "fleets": _fleets(found["fleets"]),
        "clicks": _clicks(found["clicks"]),
        "compared": _compared(found["compared"]),
    }


def block(name: str, text: str) -> str:
    """Return what stands between the marks of a name in a page. Raises ValueError without the marks."""
    return _block(name, text)[2]


def replaced(name: str, table: str, text: str) -> str:
    """Return the page with another table between the marks of a name. Raises ValueError without the marks."""
    found = _block(name, text)
    return text[: found.start(2)] + table + text[found.end(2) :]


def write(new: Mapping[str, str]) -> None:
    """Write tables into docs/scale.md. Raises ValueError if a mark is missing."""
    text = PAGE.read_text("utf-8")
    for name, table in new.items():
        text = replaced(name, table, text)
    PAGE.write_text(text, "utf-8")


def _block(name: str, text: str) -> re.Match[str]:
    marks = rf"(<!-- begin {name} -->\n\n)(.*?)\n\n<!-- end {name} -->"
    found = re.search(marks, text, re.DOTALL)
    if found is None:
        raise ValueError(f"docs/{PAGE.name}: no marks of {name}")
    return found


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _limits(rows: Sequence[Mapping[str, Any]]) -> str:
    sources = (
        "measured [over HTTP](results/http.md)",
        "exact: [the line](#recorded-times); fast: [a core](results/speed.md); and the rest of a request over HTTP",
        "fill the memory; exact: the line",
    )
    return _table(
        ("documents", "exact searches a second", "fast searches a second", ""),
        [
            (_round(row["documents"]), _two(row["exact"]), _two(row["fast"]), source)
            for row, source in zip(rows, sources, strict=True)
        ],
    )


def _inputs(rows: Sequence[Mapping[str, Any]]) -> str:
    return _table(
        ("input", "value", "", "source"),
        [(f"`{row['name']}`", f"{row['value']:,.10g}", row["unit"], row["source"]) for row in rows],
    )


def _recorded(rows: Sequence[Mapping[str, Any]]) -> str:
    return _table(
        (
            "documents of the shard", "mean, ms", "p99, ms", "the line, ms", "bytes a document",
            "model, MB",
        ),
        [
            (
                f"{row['documents']:,}", f"{row['mean_ms']:.2f}", f"{row['p99_ms']:.2f}",
                f"{row['line_ms']:.2f}", f"{row['bytes_a_document']:,.0f}", f"{row['model_mb']:.0f}",
            )
            for row in rows
        ],
    )  # fmt: skip


def _fleets(rows: Sequence[Mapping[str, Any]]) -> str:
    header = (
        "documents", "fleets × shards", "documents of a shard (times the largest recorded)", "replicas, cores of each",
        "disk, GiB", "memory of all replicas, GiB", "cores", "machines", "money a month", "p50, p99 ms, simulated",
        "encoding all: core hours, money",
    )  # fmt: skip
    return _table(
        header,
        [
            (
                _power(row["documents"]), f"{row['fleets']} × {row['shards']}",
                f"{row['shard_documents'] / 1e6:g} million ({row['times_recorded']:.0f})",
                f"{row['replicas']}, {row['replica_cores']}", f"{row['disk_gib']:,}", f"{row['memory_gib']:,}",
                f"{row['cores']:,}", f"{row['machines']:,}", f"{row['money_a_month']:,}",
                f"{_two(row['p50_ms'])}, {_two(row['p99_ms'])}",
                f"{_two(row['index_core_hours'])}, {_two(row['index_money'])}",
            )
            for row in rows
        ],
    )  # fmt: skip


def _clicks(rows: Sequence[Mapping[str, Any]]) -> str:
    header = (
        "clicks", "gzipped log, GiB", "money a month for it", "softmax loss: core hours", "machines", "money",
        "margin loss: core hours", "machines", "money",
    )  # fmt: skip
    return _table(
        header,
        [
            (
                _power(row["clicks"]), _two(row["log_gib"]), _two(row["log_money_a_month"]),
                *(
                    cell
                    for loss in ("softmax", "margin")
                    for cell in (
                        _two(row[f"{loss}_core_hours"]), row[f"{loss}_machines"], _two(row[f"{loss}_money"])
                    )
                ),
            )
            for row in rows
        ],
    )  # fmt: skip


def _compared(rows: Sequence[Mapping[str, Any]]) -> str:
    table = _table(
        ("shards", "recorded answer, ms", "simulated p50, ms", "measured p50, ms", "error"),
        [
            (
                row["shards"], f"{row['answer_ms']:.2f}", _two(row["simulated_p50_ms"]),
                f"{row['measured_p50_ms']:g}", _percent(row["error"]),
            )
            for row in rows
        ],
    )  # fmt: skip
    errors = [row["error"] for row in rows]
    least, most = _percent(min(errors)), _percent(max(errors))
    return f"{table}\n\nThe errors of the simulation are {least} to {most} of the measured median."


def _percent(share: float) -> str:
    return f"{share:+.0%}".replace("-", "−").replace("%", " %")


def _power(count: float) -> str:
    digits = len(f"{count:.0f}") - 1
    if count != 10**digits:
        return f"{count:,.0f}"
    return "10" + str(digits).translate(_POWERS)


def _round(count: float) -> str:
    """Return a count of documents; one that was extrapolated has two digits."""
    return f"{count:,}" if count <= 10**6 else f"{count / 1e6:.1f} million"


def _two(value: float | None) -> str:
    """Return a number with two significant digits, or – for None."""
    if value is None:
        return "–"
    if value >= 10:
        return f"{float(f'{value:.2g}'):,.0f}"
    return f"{value:.2g}"

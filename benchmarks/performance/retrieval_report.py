"""What the figures of the retrieval benchmark must reach, and its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from benchmarks.harness.report import NOTHING, Table
from fullrank.retrieval.index.build import FAST_FROM

Corpus = Mapping[str, Any]
"""The figures of one corpus, as benchmarks.performance.retrieval measures them."""

Corpora = Mapping[str, Corpus]
"""By name: debian, or the number of documents."""


class Bar(NamedTuple):
    """A figure and its limit.

    Attributes:
        text: What must hold.
        path: Of the figure in a corpus, joined by slashes.
        limit: Of the figure.
        is_least: Whether the limit is the least value that holds, not the largest.
        of: The corpus whose figure it is; where it was not measured, the bar is left out. "": the largest corpus;
            "all": the least figure of all of them.
        over: Path of a figure to divide by.
        from_documents: Of "all", only corpora with so many documents.
    """

    text: str
    path: str
    limit: float
    is_least: bool = False
    of: str = ""
    over: str = ""
    from_documents: int = 0

    def value(self, corpora: Corpora) -> float | None:
        """Return the figure; None if it was not measured."""
        if self.of == "all":
            large = [own for own in corpora.values() if own["documents"] >= self.from_documents]
            found = [_at(own, self.path) for own in large]
            return None if None in found else min(found, default=None)
        own = corpora[self.of or largest(corpora)]
        value: float | None = _at(own, self.path)
        if self.over and value is not None:
            below = _at(own, self.over)
            return None if below is None else value / float(below)
        return value

    def holds(self, value: float | None) -> bool:
        """Return whether a figure was measured and is within the limit."""
        if value is None:
            return False
        return value >= self.limit if self.is_least else value <= self.limit


def largest(names: Iterable[str]) -> str:
    """Return the resampled corpus with the most documents; another one only if none was resampled."""
    resampled = [name for name in names if name.isdecimal()]
    return max(resampled, key=int) if resampled else next(iter(names))


def _at(found: Any, path: str) -> Any:
    for key in path.split("/"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


_SCAN = "one FAISS IndexFlatIP scan"
_FAST = "curves/share/{}/milliseconds/fast/p50_ms"
BARS = (
    Bar(f"exact at most 0.40 × {_SCAN}", "exact_over_flat_scan", 0.4),
    Bar(f"exact at most 1.5 × {_SCAN}, at 10,000 documents", "exact_over_flat_scan", 1.5, of="10000"),
    Bar("100 % of exact answers certified", "certified_share", 1, True, "all"),
    Bar("100 % of exact answers equal to brute force", "equal_to_brute_force", 1, True, "all"),
    Bar(f"{_SCAN} at least 30 × fast", "flat_scan_over_fast", 30, True),
    Bar("exact at least 15 × fast", "fast_speedup_over_exact", 15, True),
    Bar(
        "recall@10 of fast at least 0.99, the lower end of its 95 % interval, on each corpus",
        "fast_recall_at_10_low", 0.99, True, "all", from_documents=FAST_FROM,
    ),
    Bar("fast at most 1.5 × bm25s, at 63,000 documents", "fast_over_bm25s", 1.5, of="63000"),
    *(
        Bar(
            f"fast with a filter that {float(share):.0%} match at most 1.5 × fast without".replace("%", " %"),
            _FAST.format(share), 1.5, over=_FAST.format("1"),
        )
        for share in ("0.01", "0.1")
    ),
    Bar("four workers at most 1.5 GB, proportional set size", "memory/proportional_set_gb", 1.5),
    Bar("the bundle opens within 1 s", "memory/open_s", 1),
)  # fmt: skip


def held(corpora: Corpora) -> dict[str, Any]:
    """Compare the figures of the largest corpus, or of the corpora that a bar names, with their limits."""
    bars = []
    for bar in BARS:
        if bar.of in ("", "all") or bar.of in corpora:
            value = bar.value(corpora)
            bars.append({"bar": bar.text, "value": value, "held": bar.holds(value)})
    documents = corpora[largest(corpora)]["documents"]
    return {"documents": documents, "bars": bars, "all": all(bar["held"] for bar in bars)}


SYSTEMS = {
    "exact": "exact",
    "fast": "fast",
    "flat": "FAISS flat, dense only",
    "hnsw": "FAISS HNSW, dense only",
    "bm25s": "bm25s, numba",
    "bm25s, numpy": "bm25s, numpy",
}


def tables(corpora: Corpora, bars: Mapping[str, Any]) -> list[Table]:
    """Return all tables, the goals first."""
    title = f"What must hold, at {bars['documents']:,} documents if no other size is named"
    rows = [[b["bar"], _number(b["value"]), "yes" if b["held"] else "no"] for b in bars["bars"]]
    made = [Table(title, ["bar", "found", "met"], rows)]
    made += [cost_table(corpora), ratio_table(corpora), space_table(corpora)]
    for found in corpora.values():
        if points := found.get("curves", {}).get("share"):
            made.append(share_table(points, found["documents"]))
    return made


def cost_table(corpora: Corpora) -> Table:
    """Return a row per corpus and system."""
    rows = [
        [
            _name(found),
            SYSTEMS[system],
            *(_number(figures[key]) for key in ("p50_ms", "p99_ms", "queries_per_second")),
            _recall(found, system),
        ]
        for found in corpora.values()
        for system, figures in found["milliseconds"].items()
    ]
    efforts = ", ".join(
        f"{found['hnsw']['efSearch']} on {_name(found)} ({found['hnsw']['recall_of_dense_top_10']:.3f})"
        for found in corpora.values()
    )
    return Table(
        "Short queries, the first 10",
        ["documents", "system", "p50 ms", "p99 ms", "queries/s", "recall@10"],
        rows,
        [
            "recall@10 is against the full score's first 10 by brute force, for every system; of fast with its 95 % "
            "interval (bootstrap over the queries, which tuning never saw)",
            f"efSearch of HNSW (share of the dense first 10 it finds): {efforts}",
        ],
        left=2,
    )


def ratio_table(corpora: Corpora) -> Table:
    """Return ratios within rounds: median (quartiles)."""
    names = {
        "exact_over_flat_scan": "exact / flat",
        "fast_speedup_over_exact": "exact / fast",
        "fast_over_bm25s": "fast / bm25s",
        "fast_over_hnsw": "fast / HNSW",
    }
    rows = [
        [
            _name(found),
            *(_ratio(found["ratios"][name]) for name in names),
            f"{found['certified_share']:.2%}",
            f"{found['equal_to_brute_force']:.2%}",
        ]
        for found in corpora.values()
    ]
    return Table(
        "Ratios of times within a round: median (quartiles) over the rounds",
        ["documents", *names.values(), "certified", "equal to brute force"],
        rows,
    )


def space_table(corpora: Corpora) -> Table:
    """Return bytes, memory and time to open."""
    rows = []
    for found in corpora.values():
        memory, built = found["memory"], found["built"]
        first = ", ".join(f"{mode} {s * 1e3:.0f}" for mode, s in memory["first_answers_s"].items())
        figures = {
            "documents": _name(found),
            "terms each": _number(found["terms_a_document"]),
            "bytes each": f"{found['bytes_per_document']:,.0f}",
            "built s (cores), peak GB": NOTHING
            if built is None
            else f"{built['seconds']:,.0f} ({built['cores']}), {built['peak_resident_gb']:.2f}",
            "4 workers GB": _number(memory["proportional_set_gb"]),
            "their own GB": _number(memory["of_their_own_gb"]),
            "open ms": _number(memory["open_s"] * 1e3),
            "first answer ms": first,
        }
        rows.append(figures)
    return Table(
        "Space and opening",
        list(rows[0]),
        [list(row.values()) for row in rows],
        [
            "4 workers GB: proportional set size of all, the service's code included; their own: not shared",
            "built: fullrank index, from the texts to the bundle; peak: resident in all processes, mapped files too",
        ],
    )


def share_table(points: Mapping[str, Corpus], documents: int) -> Table:
    """Return p50 at every share of documents that match, and the recall and certificates."""
    rows = [
        [
            f"{float(share):.2%}",
            *(_number(figures["p50_ms"]) for figures in found["milliseconds"].values()),
            f"{found['recall']['fast']:.4f}" if "fast" in found["recall"] else NOTHING,
            _number(found["filter_ms"]),
            f"{found['certified_share']:.0%}, {found['equal_to_brute_force']:.0%}",
        ]
        for share, found in points.items()
    ]
    title = "share of documents that match"
    systems = list(next(iter(points.values()))["milliseconds"])
    headings = [title, *systems, "recall of fast", "filter itself", "exact: certified, equal"]
    return Table(f"p50 in ms by {title}, {documents:,} documents", headings, rows)


def _name(found: Corpus) -> str:
    count = f"{found['documents']:,}"
    return count if str(found["corpus"]).isdecimal() else f"{count} ({found['corpus']})"


def _recall(found: Corpus, system: str) -> str:
    mean = f"{found['recall_at_10'][system]:.4f}"
    if system != "fast":
        return mean
    return f"{mean} ({found['fast_recall_at_10_low']:.4f} to {found['fast_recall_at_10_high']:.4f})"


def _ratio(ratio: Mapping[str, float] | None) -> str:
    if ratio is None:
        return NOTHING
    return f"{ratio['median']:.3g} ({ratio['q25']:.3g} to {ratio['q75']:.3g})"


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"

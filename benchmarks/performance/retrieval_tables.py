"""Tables and plots of the retrieval benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.plots import Curve, curves
from benchmarks.harness.tables import NOTHING, Table
from benchmarks.performance.retrieval_bars import Corpora, Corpus

SYSTEMS = {
    "exact": "exact",
    "fast": "fast",
    "flat": "FAISS flat, dense only",
    "hnsw": "FAISS HNSW, dense only",
    "bm25s": "bm25s, numba",
    "bm25s, numpy": "bm25s, numpy",
    "fusion": "fusion: HNSW, bm25s",
    "fusion, own lists": "fusion: HNSW, own lexical part",
}
_PLOTTED = ("exact", "fast", "flat", "hnsw", "bm25s", "fusion")


def tables(
    corpora: Corpora, bars: Mapping[str, Any], terms: Mapping[str, Any] | None
) -> list[Table]:
    """Return all tables, the goals first."""
    made = [bars_table(bars), cost_table(corpora), ratio_table(corpora), space_table(corpora)]
    for found in corpora.values():
        for what, points in found.get("curves", {}).items():
            if points:
                made.append(curve_table(what, points, found["documents"]))
    made += [terms_table(terms)] if terms else []
    return made


def bars_table(bars: Mapping[str, Any]) -> Table:
    """Return the table of goals."""
    rows = [
        [bar["bar"], _number(bar["value"]), "yes" if bar["held"] else "no"]
        for bar in bars["bars"].values()
    ]
    title = f"What must hold, at {bars['documents']:,} documents if no other size is named"
    return Table(title, ["bar", "found", "held"], rows)


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
        "fast_over_fusion": "fast / fusion",
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
    """Return bytes, memory, time to open and the physical limit."""
    rows = []
    for found in corpora.values():
        memory, limit = found["memory"], found["limit"]
        first = ", ".join(f"{mode} {s * 1e3:.0f}" for mode, s in memory["first_answers_s"].items())
        rows.append(
            [
                _name(found),
                _number(found["terms_a_document"]),
                f"{found['bytes_per_document']:,.0f}",
                _built(found["built"]),
                _number(memory["proportional_set_gb"]),
                _number(memory["of_their_own_gb"]),
                _number(memory["open_s"] * 1e3),
                first,
                _number(limit["gigabytes_a_second"]),
                _number(limit["dense_ms"]),
                _number(limit["with_all_postings_ms"]),
                f"{limit['exact_over_limit']:.2f} to {limit['exact_over_dense_limit']:.2f}",
            ]
        )
    return Table(
        "Space, opening, and the physical limit of an exact scan",
        [
            "documents",
            "terms each",
            "bytes each",
            "built s (cores), peak GB",
            "4 workers GB",
            "their own GB",
            "open ms",
            "first answer ms",
            "GB/s",
            "limit ms",
            "with postings ms",
            "exact over limit",
        ],
        rows,
        [
            "4 workers GB: proportional set size of all, the service's code included; their own: not shared",
            "built: fullrank index, from the texts to the bundle; peak: resident, pages of mapped files included",
            "limit: bytes of the dense scan and the bias / bandwidth; with postings: those of all query words too",
        ],
    )


def curve_table(what: str, points: Mapping[str, Corpus], documents: int) -> Table:
    """Return p50 of every system at every point, and the recall and certificates of ours."""
    systems = list(next(iter(points.values()))["milliseconds"])
    title = {"k": "k", "words": "words of the query", "share": "share of documents that match"}[
        what
    ]
    rows = []
    for at, found in points.items():
        fast = found["recall"].get("fast")
        rows.append(
            [
                f"{float(at):.2%}" if what == "share" else f"{int(at):,}",
                *(_number(found["milliseconds"][system]["p50_ms"]) for system in systems),
                NOTHING if fast is None else f"{fast:.4f}",
                *([_number(found["filter_ms"])] if what == "share" else []),
                f"{found['certified_share']:.0%}, {found['equal_to_brute_force']:.0%}",
            ]
        )
    headings = [title, *(SYSTEMS[system] for system in systems), "recall of fast"]
    headings += ["filter itself"] if what == "share" else []
    return Table(
        f"p50 in ms by {title}, {documents:,} documents",
        [*headings, "exact: certified, equal"],
        rows,
    )


def terms_table(terms: Mapping[str, Any]) -> Table:
    """Return term statistics of the source and the resampled corpus."""
    source, corpus = terms["source"], terms["corpus"]
    rows = [
        ["documents", f"{source['documents']:,}", f"{corpus['documents']:,}"],
        ["vocabulary", f"{source['vocabulary']:,}", f"{corpus['vocabulary']:,}"],
    ]
    for key, value in source["terms_a_document"].items():
        name = "mean" if key == "mean" else f"{key[1:]} % quantile"
        other = corpus["terms_a_document"][key]
        rows.append([f"distinct words a document, {name}", _number(value), _number(other)])
    for rank, share in source["df_over_n_at_rank"].items():
        other = corpus["df_over_n_at_rank"].get(rank)
        name = f"df/n of the word of rank {int(rank):,}"
        rows.append([name, _number(share), _number(other)])
    return Table("Term statistics", ["", "Debian without held out", "resampled"], rows)


def plots(corpora: Corpora, folder: Path) -> list[Path]:
    """Plot p50 against documents, k, words and selectivity, with logarithmic axes."""
    made = []
    grown = sorted(
        (found for name, found in corpora.items() if name.isdecimal()),
        key=lambda found: int(found["documents"]),
    )
    if len(grown) > 1:
        lines: dict[str, Curve] = {
            SYSTEMS[system]: (
                [found["documents"] for found in grown],
                [found["milliseconds"][system]["p50_ms"] for found in grown],
            )
            for system in _PLOTTED
            if system in grown[0]["milliseconds"]
        }
        made.append(_plot(folder / "documents.svg", {"first 10": lines}, "documents"))
    for found in corpora.values():
        panels: dict[str, dict[str, Curve]] = {}
        axes = {"k": "k", "words": "words", "share": "share of documents that match"}
        for what, points in found.get("curves", {}).items():
            panels[what] = _lines(points)
        for what, lines in panels.items():
            if lines:
                title = f"{found['documents']:,} documents"
                made.append(_plot(folder / f"{what}.svg", {title: lines}, axes[what]))
    return made


def _lines(points: Mapping[str, Corpus]) -> dict[str, Curve]:
    if not points:
        return {}
    there = next(iter(points.values()))["milliseconds"]
    return {
        SYSTEMS[system]: (
            [float(at) for at in points],
            [found["milliseconds"][system]["p50_ms"] for found in points.values()],
        )
        for system in _PLOTTED
        if system in there
    }


def _plot(path: Path, panels: Mapping[str, Mapping[str, Curve]], x: str) -> Path:
    return curves(path, panels, x=x, y="p50 in ms", log_x=True, log_y=True)


def _name(found: Corpus) -> str:
    count = f"{found['documents']:,}"
    return count if str(found["corpus"]).isdecimal() else f"{count} ({found['corpus']})"


def _built(facts: Mapping[str, Any] | None) -> str:
    if facts is None:
        return NOTHING
    return f"{facts['seconds']:,.0f} ({facts['cores']}), {facts['peak_resident_gb']:.2f}"


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

"""What the figures of the retrieval benchmark must reach."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fullrank.retrieval.index.build import FAST_FROM

Corpus = Mapping[str, Any]
"""The figures of one corpus, as benchmarks.performance.retrieval_corpus measures them."""

Corpora = Mapping[str, Corpus]
"""By name: debian, or the number of documents."""


class Bar(NamedTuple):
    """A figure and its limit.

    Attributes:
        text: What must hold.
        value_of: The figure; None: it was not measured, so it does not hold.
        limit: Of the figure.
        is_least: Whether the limit is the least value that holds, not the largest.
        sizes: Corpora that it needs; where one was not measured, the bar is left out.
    """

    text: str
    value_of: Callable[[Corpora], float | None]
    limit: float
    is_least: bool = False
    sizes: tuple[str, ...] = ()

    def holds(self, value: float | None) -> bool:
        """Return whether a figure is within the limit."""
        if value is None:
            return False
        return value >= self.limit if self.is_least else value <= self.limit


def largest(names: Iterable[str]) -> str:
    """Return the resampled corpus with the most documents; another one only if none was resampled."""
    resampled = [name for name in names if name.isdecimal()]
    return max(resampled, key=int) if resampled else next(iter(names))


def _of_largest(*path: str) -> Callable[[Corpora], float | None]:
    return lambda corpora: _at(corpora[largest(corpora)], path)


def _of(name: str, *path: str) -> Callable[[Corpora], float | None]:
    return lambda corpora: _at(corpora[name], path)


def _least(key: str, from_documents: int = 0) -> Callable[[Corpora], float | None]:
    """Return the least figure of all corpora with so many documents; None if one of them has none."""

    def value_of(corpora: Corpora) -> float | None:
        large = [own for own in corpora.values() if own["documents"] >= from_documents]
        found = [own[key] for own in large]
        return None if None in found else min(found, default=None)

    return value_of


def _filtered(share: str) -> Callable[[Corpora], float | None]:
    """Return how many times longer fast takes with a filter than where all documents match."""

    def value_of(corpora: Corpora) -> float | None:
        points = corpora[largest(corpora)].get("curves", {}).get("share", {})
        times = [_at(points, (own, "milliseconds", "fast", "p50_ms")) for own in (share, "1")]
        return None if None in times else times[0] / times[1]

    return value_of


def _at(found: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = found
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


_SCAN = "one FAISS IndexFlatIP scan"
_READ = "the physical limit: one read of what it scans, at the measured bandwidth"
BARS = {
    "exact_over_flat_scan": Bar(
        f"exact at most 0.40 × {_SCAN}", _of_largest("exact_over_flat_scan"), 0.4
    ),
    "exact_over_flat_scan_10000": Bar(
        f"exact at most 1.5 × {_SCAN}, at 10,000 documents",
        _of("10000", "exact_over_flat_scan"),
        1.5,
        sizes=("10000",),
    ),
    "exact_over_dense_limit": Bar(
        f"exact at most 2.0 × {_READ}", _of_largest("limit", "exact_over_dense_limit"), 2
    ),
    "exact_over_dense_limit_63000": Bar(
        "exact at most 2.0 × this limit, at 63,000 documents",
        _of("63000", "limit", "exact_over_dense_limit"),
        2,
        sizes=("63000",),
    ),
    "certified_share": Bar(
        "100 % of exact answers certified", _least("certified_share"), 1, is_least=True
    ),
    "equal_to_brute_force": Bar(
        "100 % of exact answers equal to brute force",
        _least("equal_to_brute_force"),
        1,
        is_least=True,
    ),
    "flat_scan_over_fast": Bar(
        f"{_SCAN} at least 30 × fast", _of_largest("flat_scan_over_fast"), 30, is_least=True
    ),
    "fast_speedup_over_exact": Bar(
        "exact at least 15 × fast", _of_largest("fast_speedup_over_exact"), 15, is_least=True
    ),
    "fast_recall_at_10_low": Bar(
        "recall@10 of fast at least 0.99, the lower end of its 95 % interval, on each corpus",
        _least("fast_recall_at_10_low", FAST_FROM),
        0.99,
        is_least=True,
    ),
    "fast_over_bm25s": Bar(
        "fast at most 1.5 × bm25s, at 63,000 documents",
        _of("63000", "fast_over_bm25s"),
        1.5,
        sizes=("63000",),
    ),
    "fast_filtered_1": Bar(
        "fast with a filter that 1 % match at most 1.5 × fast without", _filtered("0.01"), 1.5
    ),
    "fast_filtered_10": Bar(
        "fast with a filter that 10 % match at most 1.5 × fast without", _filtered("0.1"), 1.5
    ),
    "proportional_set_gb": Bar(
        "four workers at most 1.5 GB, proportional set size",
        _of_largest("memory", "proportional_set_gb"),
        1.5,
    ),
    "open_s": Bar("the bundle opens within 1 s", _of_largest("memory", "open_s"), 1),
}


def held(corpora: Corpora) -> dict[str, Any]:
    """Compare the figures of the largest corpus, or of the corpora that a bar names, with their limits."""
    bars = {}
    for name, bar in BARS.items():
        if set(bar.sizes) <= set(corpora):
            value = bar.value_of(corpora)
            bars[name] = {"bar": bar.text, "value": value, "held": bar.holds(value)}
    return {
        "documents": corpora[largest(corpora)]["documents"],
        "bars": bars,
        "all": all(bar["held"] for bar in bars.values()),
    }

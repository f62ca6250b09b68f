"""Claims of the papers, as statements that an experiment tests.

A finding compares two systems on the same queries: the mean over queries of the gain of one over the other, with its
paired standard error. ``beats`` needs a gain above two standard errors, ``equals`` (equals or beats) a gain not below
minus two, ``alike`` a difference within ``margin`` or two standard errors. Without results, a finding is untested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.store import Result
from benchmarks.harness.tables import NAMES, Table, scale
from fullrank.measures import Estimate, estimate

STATEMENTS = {
    "supervision": "Supervised low rank models beat tf-idf and LSI",
    "softmax": "UᵀV + I under the softmax loss beats tf-idf and the margin loss (ours, not the papers')",
    "low-rank": "Low rank beats dense W",
    "diagonal": "W = D beats W = I",
    "sparsity": "Sparse W loses with fewer weights per row",
    "zero-diagonal": "Dense W with its diagonal beats dense W without it",
    "asymmetric": "UᵀV at least equals UᵀU on short queries",
    "asymmetric-documents": "UᵀV at least equals UᵀU, document to document",
    "identity": "UᵀV + I beats UᵀV",
    "identity-lsi": "LSI mixed with tf-idf beats LSI",
    "frequent": "Latent vectors for frequent words only beat those for all words",
    "dimension": "The latent dimension matters little (100 to 500)",
    "split": "Documents without training links are ranked alike",
    "cfh": "CFH beats the same model without it on rare words",
    "cfh-all": "CFH beats the same model without it on all queries",
    "hash-size": "Hash kernels lose accuracy at small tables",
    "hash-low-rank": "Low rank beats hash kernels",
    "hash-identity": "Hash kernels gain from αI",
    "hash-speed": "Low rank is faster at test time by the factor |q||d|/N",
    "htr": "HTR beats SSI at γ > 0",
    "htr-gamma": "HTR overfits at γ = 0",
    "bltm-pr": "BLTM-PR at least equals BLTM",
    "bltm": "BLTM at least equals PLSA",
    "bltm-unigram": "BLTM-PR's NDCG@10 is above the unigram model's",
    "bltm-pr-1v": "BLTM-PR with one vocabulary at least equals BLTM-PR with two",
    "bltm-pr-translation": "BLTM-PR beats word translation",
    "mixture": "The unigram model mixed with what clicks taught beats it alone",
    "s2net": "S2Net beats OPCA and CL-LSA",
    "dssm-linear": "DSSM beats linear projections",
    "dssm-best": "DSSM (modern) on tldr/en: MRR within 0.03 of the best linear model",
    "data": "More training data helps",
    "overfitting": "Training for long overfits with few links, not with many",
    "cross-language": "Training across languages beats translating first",
    "cross-language-lsi": "Training across languages beats CL-LSI",
    "cross-language-mix": "Mixing with the translated query gains",
    "mates": "Trained mate finding beats CL-LSI",
    "multi-task": "The monolingual task helps when cross-language pairs are few",
    "content": "Learned content matching beats tf-idf",
    "reconstruction": "Half transductive LSI beats LSI and tf-idf, unsupervised",
    "graph": "Half transductive eigenmaps are as good as eigenmaps with extension",
}

REPRODUCED, FAILED, UNTESTED = "reproduced", "not reproduced", "not tested"
LOWER_IS_BETTER = ("rank_loss", "1nn_error")


@dataclass(frozen=True)
class Finding:
    """One test of a statement, in one place.

    claim       key of STATEMENTS
    where       task, in words
    tested      what was compared, in words
    verdict     reproduced, not reproduced or not tested
    difference  the gain of what should be better, above zero is better; None where not paired
    figures     the means compared, or whatever was observed
    """

    claim: str
    where: str
    tested: str
    verdict: str
    measure: str = ""
    difference: Estimate | None = None
    figures: Mapping[str, float] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.claim not in STATEMENTS:
            raise ValueError(f"no statement {self.claim!r}")

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self) | {
            "statement": STATEMENTS[self.claim],
            "difference": None if self.difference is None else self.difference.as_dict(),
            "figures": dict(self.figures or {}),
        }


def compare(
    claim: str,
    where: str,
    results: Mapping[str, Result],
    better: str,
    worse: str,
    measure: str,
    *,
    rule: str = "beats",
    margin: float = 0.0,
    rows: npt.NDArray[np.bool_] | None = None,
    of: str = "",
) -> Finding:
    """Test ``better`` against ``worse`` on the queries that both were measured on.

    rule    "beats", "equals" or "alike"
    margin  in the measure's own unit: what "alike" allows, and what "equals" forgives
    rows    bool (queries,): only these; ``of`` says which they are
    """
    signs = {"beats": ">", "equals": "≥", "alike": "≈"}
    tested = f"{better} {signs[rule]} {worse}" + (f" ({of})" if of else "")
    found = [results.get(name) for name in (better, worse)]
    first, second = found
    if first is None or second is None:
        absent = [n for n, r in zip((better, worse), found, strict=True) if r is None]
        return Finding(
            claim, where, tested, UNTESTED, measure, note=f"no {' and no '.join(absent)}"
        )
    if first.queries != second.queries:
        return Finding(claim, where, tested, UNTESTED, measure, note="measured on other queries")
    sign = -1.0 if measure in LOWER_IS_BETTER else 1.0
    values = [result.values[measure] for result in (first, second)]
    if rows is not None:
        values = [value[rows] for value in values]
    if not len(values[0]):
        return Finding(claim, where, tested, UNTESTED, measure, note="no such query")
    gain = estimate(sign * (values[0] - values[1]))
    error = 0.0 if np.isnan(gain.standard_error) else gain.standard_error
    held = {
        "beats": gain.mean > max(0.0, 2 * error),
        "equals": gain.mean >= -max(margin, 2 * error),
        "alike": abs(gain.mean) <= max(margin, 2 * error),
    }[rule]
    figures = {n: float(v.mean()) for n, v in zip((better, worse), values, strict=True)}
    note = ""
    if rule == "beats" and not held:
        note = "the other way round" if gain.mean < -2 * error else "no difference that counts"
    verdict = REPRODUCED if held else FAILED
    return Finding(claim, where, tested, verdict, measure, gain, figures, note)


def observed(
    claim: str,
    where: str,
    tested: str,
    held: bool | None,
    *,
    measure: str = "",
    figures: Mapping[str, float] | None = None,
    note: str = "",
) -> Finding:
    """Return a finding that is not a paired difference; ``held`` None means untested."""
    verdict = UNTESTED if held is None else REPRODUCED if held else FAILED
    return Finding(claim, where, tested, verdict, measure, None, figures, note)


def findings_table(found: Sequence[Mapping[str, Any]], title: str = "Findings") -> Table:
    """Return a table with one row per finding, from its JSON form; notes name untested ones."""
    rows = [
        [
            one["statement"],
            one["where"],
            one["tested"],
            NAMES.get(one["measure"], one["measure"]),
            _difference(one),
            one["verdict"] + (f": {one['note']}" if one["note"] else ""),
        ]
        for one in found
        if one["verdict"] != UNTESTED
    ]
    left = {f"{one['tested']} on {one['where']}": one["note"] for one in found
            if one["verdict"] == UNTESTED}  # fmt: skip
    notes = [f"not tested: {what}" + (f" ({why})" if why else "") for what, why in left.items()]
    headings = ["statement", "where", "compared", "measure", "gain", "verdict"]
    return Table(title, headings, rows, notes, left=4)


def _difference(finding: Mapping[str, Any]) -> str:
    measure, gain = finding["measure"], finding["difference"]
    if gain is None:
        return ", ".join(f"{name} {value:.3g}" for name, value in finding["figures"].items())
    digits = 2 if scale(measure) > 1 else 4
    error = (gain["standard_error"] or 0.0) * scale(measure)
    return f"{gain['mean'] * scale(measure):+.{digits}f} ± {error:.{digits}f}"

"""Claims of the papers, as statements that an experiment tests.

A test compares two systems on the same queries: the mean over queries of the gain of one over the other, with its
paired standard error. ``beats`` needs a gain above two standard errors, ``equals`` (equals or beats) a gain not below
minus two, ``alike`` a difference within ``margin`` or two standard errors. Without results, a claim is untested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.harness.report import NAMES, Table, scale
from benchmarks.harness.store import Result
from fullrank.measures import estimate

STATEMENTS = {
    "supervision": "Supervised low rank models beat tf-idf and LSI",
    "softmax": "UᵀV + I under the softmax loss beats tf-idf and the margin loss (our statement, not the papers')",
    "low-rank": "Low rank beats dense W",
    "diagonal": "W = D beats W = I",
    "sparsity": "Sparse W loses with fewer weights per row",
    "zero-diagonal": "Dense W with its diagonal beats dense W without it",
    "asymmetric": "UᵀV at least equals UᵀU on short queries",
    "asymmetric-documents": "UᵀV at least equals UᵀU, document to document",
    "identity": "UᵀV + I beats UᵀV",
    "identity-lsi": "LSI mixed with tf-idf beats LSI",
    "frequent": "Latent vectors only for frequent words beat latent vectors for all words",
    "dimension": "The latent dimension matters little (100 to 500)",
    "split": "Documents without training links are ranked alike",
    "cfh-all": "CFH beats the same model without it on all queries",
    "hash-size": "Hash kernels lose accuracy at small tables",
    "hash-low-rank": "Low rank beats hash kernels",
    "hash-identity": "Hash kernels gain from αI",
    "htr": "HTR beats SSI at γ > 0",
    "htr-gamma": "HTR overfits at γ = 0",
    "bltm-pr": "BLTM-PR at least equals BLTM",
    "bltm": "BLTM at least equals PLSA",
    "bltm-unigram": "BLTM-PR's NDCG@10 is above the unigram model's",
    "bltm-pr-1v": "BLTM-PR with one vocabulary at least equals BLTM-PR with two",
    "bltm-pr-translation": "BLTM-PR beats word translation",
    "mixture": "The unigram model mixed with a model of clicks beats it alone",
    "s2net": "S2Net beats OPCA and CL-LSA",
    "dssm-linear": "DSSM beats linear projections",
    "data": "More training data helps",
    "cross-language": "Training across languages beats translating first",
    "cross-language-lsi": "Training across languages beats CL-LSI",
    "cross-language-mix": "Mixing with the translated query gains",
    "mates": "Trained mate finding beats CL-LSI",
    "multi-task": "The monolingual task helps when cross-language pairs are few",
}

REPRODUCED, FAILED, UNTESTED = "reproduced", "not reproduced", "not tested"
LOWER_IS_BETTER = ("rank_loss",)


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
) -> dict[str, Any]:
    """Test one statement in one place, on the queries that both systems were measured on.

    Args:
        claim: Key of STATEMENTS.
        where: Task, in words.
        results: Of all systems.
        better, worse: Names of systems.
        measure: Of the results.
        rule: "beats", "equals" or "alike".
        margin: What "alike" allows and "equals" forgives, in the measure's own unit.

    Returns:
        claim, statement, where, tested (in words), measure, verdict, difference (the gain of what should be better,
        above zero is better; None if untested), figures (the means), note.
    """
    signs = {"beats": ">", "equals": "≥", "alike": "≈"}
    finding: dict[str, Any] = {
        "claim": claim,
        "statement": STATEMENTS[claim],
        "where": where,
        "tested": f"{better} {signs[rule]} {worse}",
        "measure": measure,
        "verdict": UNTESTED,
        "difference": None,
        "figures": {},
        "note": "",
    }
    if absent := [name for name in (better, worse) if name not in results]:
        return finding | {"note": f"no {' and no '.join(absent)}"}
    first, second = results[better], results[worse]
    if first.queries != second.queries or not first.queries:
        return finding | {"note": "measured on other queries"}
    sign = -1.0 if measure in LOWER_IS_BETTER else 1.0
    gain = estimate(sign * (first.values[measure] - second.values[measure]))
    error = 0.0 if np.isnan(gain.standard_error) else gain.standard_error
    held = {
        "beats": gain.mean > max(0.0, 2 * error),
        "equals": gain.mean >= -max(margin, 2 * error),
        "alike": abs(gain.mean) <= max(margin, 2 * error),
    }[rule]
    note = ""
    if rule == "beats" and not held:
        note = "the other way round" if gain.mean < -2 * error else "no difference that counts"
    return finding | {
        "verdict": REPRODUCED if held else FAILED,
        "difference": gain.as_dict(),
        "figures": {n: float(results[n].values[measure].mean()) for n in (better, worse)},
        "note": note,
    }


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
    digits = 2 if scale(measure) > 1 else 4
    error = (gain["standard_error"] or 0.0) * scale(measure)
    return f"{gain['mean'] * scale(measure):+.{digits}f} ± {error:.{digits}f}"

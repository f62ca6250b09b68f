"""Write a TREC run and measure it with ir-measures.

    python -m examples.trec_run

Shows that Fullrank's own figures and those of another program agree, so a run can be compared with any other system.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import ir_measures

from examples.shop import train_bm25, write_click_log
from examples.train_from_clicks import write_collection
from fullrank import open_bundle
from fullrank_trainer.collection import read_collection
from fullrank_trainer.evaluation.evaluate import evaluate
from fullrank_trainer.evaluation.trec import write_qrels


def main(folder: Path) -> None:
    """Rank the test queries of the shop, and compare the measures of two programs."""
    write_click_log(folder / "clicks.csv")
    write_collection(folder / "clicks.csv", folder / "collection")
    # With these, a query would count as often as people clicked; ir-measures counts each once.
    shutil.rmtree(folder / "collection" / "weights")
    bundle = open_bundle(train_bm25(folder))
    collection = read_collection(folder / "collection")

    run, qrels = folder / "run.trec", folder / "qrels.trec"
    ours = evaluate(bundle, collection, "test", run=run)
    write_qrels(qrels, collection.qrels("test"))

    names = {"map": ir_measures.AP, "mrr": ir_measures.RR, "ndcg@10": ir_measures.nDCG @ 10}
    theirs = ir_measures.calc_aggregate(
        names.values(),
        list(ir_measures.read_trec_qrels(str(qrels))),
        list(ir_measures.read_trec_run(str(run))),
    )
    for name, measure in names.items():
        print(
            f"{name:8} fullrank {ours.measures[name].mean:.4f}  ir-measures {theirs[measure]:.4f}"
        )


if __name__ == "__main__":
    main(Path(tempfile.mkdtemp()))

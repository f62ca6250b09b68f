"""The peer of benchmarks.performance.training: the same steps of UᵀV with torch. Run by a Python that has torch.

    PYTHON embedding_bag.py FORM STEPS.npz SECONDS THREADS

EmbeddingBag in mode "sum" with weights per sample and sparse gradients; the margin loss in batches of 512 triples with
SGD (a step per triple would be several times slower), the softmax loss with in-batch and sampled candidates and sparse
Adagrad. Only torch and numpy are imported, so that no other environment is needed.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

torch: Any = import_module("torch")
_BATCH = 512


def bags(arrays: dict[str, np.ndarray], side: str, rows: np.ndarray) -> list[Any]:
    """Return indices, offsets and weights of some rows."""
    indptr = arrays[f"{side}_indptr"]
    sizes = indptr[rows + 1] - indptr[rows]
    offsets = np.cumsum(sizes) - sizes
    place = np.arange(sizes.sum()) + np.repeat(indptr[rows] - offsets, sizes)
    indices = arrays[f"{side}_indices"][place].astype(np.int64)
    values = arrays[f"{side}_values"][place]
    return [torch.from_numpy(a) for a in (indices, offsets, values)]


def main() -> None:
    form, path, seconds, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    arrays = dict(np.load(path))
    tables = []
    for name in ("U", "V"):
        table = torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(arrays[name]), freeze=False, mode="sum", sparse=True
        )
        tables.append(table)
    U, V = tables
    parameters = [table.weight for table in tables]
    rng = np.random.default_rng(1)
    is_margin = form == "margin-dense"
    batch = _BATCH if is_margin else int(arrays["batch"])
    if is_margin:
        optimiser: Any = torch.optim.SGD(parameters, lr=0.03)
    else:
        optimiser = torch.optim.Adagrad(parameters, lr=float(arrays["rate"]))
    documents = len(arrays["d_indptr"]) - 1
    done, spent, start = 0, 0.0, 0
    while spent < float(seconds):
        if start + batch > len(arrays["queries"]):
            start = 0
        part = slice(start, start + batch)
        start += batch
        began = time.monotonic()
        queries, positives = arrays["queries"][part], arrays["positives"][part]
        indices, offsets, values = bags(arrays, "q", queries)
        u = U(indices, offsets, values)
        if is_margin:
            found = []
            for rows in (positives, arrays["negatives"][part]):
                indices, offsets, values = bags(arrays, "d", rows)
                found.append((u * V(indices, offsets, values)).sum(1))
            loss = torch.relu(1 - found[0] + found[1]).sum()
        else:
            more = rng.integers(0, documents, int(arrays["candidates"]))
            candidates, place = np.unique(np.concatenate([positives, more]), return_inverse=True)
            indices, offsets, values = bags(arrays, "d", candidates)
            scores = u @ V(indices, offsets, values).T
            target = torch.from_numpy(place[: len(positives)])
            loss = torch.nn.functional.cross_entropy(scores, target)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if done or spent:
            spent += time.monotonic() - began
            done += batch
        else:
            spent = 1e-9  # the first step is not counted
    print(json.dumps({"items_per_second": done / spent, "torch": torch.__version__}))


if __name__ == "__main__":
    main()

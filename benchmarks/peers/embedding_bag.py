"""The peer of benchmarks.performance.training: the same steps of UᵀV with torch. Run by a Python that has torch.

    PYTHON embedding_bag.py FORM STEPS.npz SECONDS THREADS

EmbeddingBag in mode "sum" with weights per sample; the margin loss in batches of triples with SGD (a step per
triple would be several times slower), the softmax loss of fullrank_trainer.systems.linear.softmax with Adagrad,
on queries, candidates and links that are drawn as ours. Once with sparse gradients, whose steps take as long for
any vocabulary, and once with dense ones, which are faster for a small one. Only torch and numpy are imported, so that
no other environment is needed.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from typing import Any

import numpy as np

torch: Any = import_module("torch")


def bags(arrays: dict[str, np.ndarray], side: str, rows: np.ndarray) -> list[Any]:
    """Return indices, offsets and weights of some rows."""
    indptr = arrays[f"{side}_indptr"]
    sizes = indptr[rows + 1] - indptr[rows]
    offsets = np.cumsum(sizes) - sizes
    place = np.arange(sizes.sum()) + np.repeat(indptr[rows] - offsets, sizes)
    indices = arrays[f"{side}_indices"][place].astype(np.int64)
    values = arrays[f"{side}_values"][place]
    return [torch.from_numpy(a) for a in (indices, offsets, values)]


class Margin:
    """The hinge loss of a batch of triples.

    Args:
        arrays: the matrices, ``queries``, ``positives`` and ``negatives`` of the triples, and the ``batch`` of a step.
        U, V: the tables of queries and documents.
    """

    def __init__(self, arrays: dict[str, np.ndarray], U: Any, V: Any) -> None:
        self._arrays, self._U, self._V = arrays, U, V
        self._batch = int(arrays["batch"])
        self.steps = len(arrays["queries"]) // self._batch
        self.optimiser: Any = torch.optim.SGD([U.weight, V.weight], lr=0.03)

    def loss(self, step: int) -> tuple[Any, int]:
        """Return the loss of a step, and its number of triples."""
        part = slice(step * self._batch, (step + 1) * self._batch)
        u = self._U(*bags(self._arrays, "q", self._arrays["queries"][part]))
        found = [
            (u * self._V(*bags(self._arrays, "d", self._arrays[name][part]))).sum(1)
            for name in ("positives", "negatives")
        ]
        return torch.relu(1 - found[0] + found[1]).sum(), len(u)


class Softmax:
    """The softmax loss of a batch: every link of a query against all candidates that it does not judge.

    Args:
        arrays: the matrices, and of each step its ``queries`` and ``candidates``, the places of the ``links`` among the
            candidates, and how many links each query has (``degrees``); ``step_queries``, ``step_candidates`` and
            ``step_links`` say where a step begins.
        U, V: the tables of queries and documents.
    """

    def __init__(self, arrays: dict[str, np.ndarray], U: Any, V: Any) -> None:
        self._arrays, self._U, self._V = arrays, U, V
        self.steps = len(arrays["step_queries"]) - 1
        self.optimiser: Any = torch.optim.Adagrad([U.weight, V.weight], lr=float(arrays["rate"]))

    def _of(self, name: str, by: str, step: int) -> np.ndarray:
        starts = self._arrays[f"step_{by}"]
        return self._arrays[name][starts[step] : starts[step + 1]]

    def loss(self, step: int) -> tuple[Any, int]:
        """Return the loss of a step, and its number of links."""
        queries, degrees = (self._of(name, "queries", step) for name in ("queries", "degrees"))
        u = self._U(*bags(self._arrays, "q", queries))
        v = self._V(*bags(self._arrays, "d", self._of("candidates", "candidates", step)))
        scores = u @ v.T
        row = torch.from_numpy(np.repeat(np.arange(len(queries)), degrees))
        place = torch.from_numpy(self._of("links", "links", step))
        linked = scores[row, place]
        others = scores.index_put((row, place), torch.tensor(-torch.inf)).logsumexp(1)
        weights = torch.from_numpy(np.repeat(degrees**-0.5, degrees).astype(np.float32))
        shares = linked - torch.logaddexp(linked, others[row])
        return -(weights * shares).sum() / len(queries), len(place)


def measure(
    form: str, arrays: dict[str, np.ndarray], seconds: float, is_sparse: bool
) -> dict[str, float]:
    """Take steps for some seconds; return links a second, and the loss of the first step."""
    U, V = (
        torch.nn.EmbeddingBag.from_pretrained(
            torch.from_numpy(arrays[name].copy()), freeze=False, mode="sum", sparse=is_sparse
        )
        for name in ("U", "V")
    )
    training = (Margin if form == "margin-dense" else Softmax)(arrays, U, V)
    done, spent, step, first_loss = 0, 0.0, 0, 0.0
    while spent < seconds:
        began = time.monotonic()
        loss, count = training.loss(step % training.steps)
        training.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        training.optimiser.step()
        if step:  # the first step is not counted
            spent += time.monotonic() - began
            done += count
        else:
            first_loss = loss.item()
        step += 1
    return {"links_per_second": done / spent, "first_loss": round(first_loss, 4)}


def main() -> None:
    form, path, seconds, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    arrays = dict(np.load(path))
    kinds = {"sparse": True, "dense": False}
    found = {name: measure(form, arrays, float(seconds), kind) for name, kind in kinds.items()}
    print(json.dumps({**found, "torch": torch.__version__}))


if __name__ == "__main__":
    main()

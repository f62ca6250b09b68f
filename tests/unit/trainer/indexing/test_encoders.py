"""Batches that several processes encode: the same encodings in the same order as one process gives."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullrank.encoding import Encoded
from fullrank.storage.documents import Document
from fullrank.workers import Worker
from fullrank_trainer import indexing as encoders
from fullrank_trainer.indexing import encode_batches
from tests.golden.test_golden import WORDS, planted_model

_DEADLINE_S = 60


class Waiting:
    """A model that encodes a batch only when the worker has something to say."""

    def __init__(self) -> None:
        self.model, self.encoded, self.is_heard = planted_model(), 0, False
        self.workers: list[Worker] = []

    def encode_documents(self, documents: Sequence[Mapping[str, str]]) -> Encoded:
        self.encoded += 1
        until = time.monotonic() + _DEADLINE_S
        while not Worker.has_message(self.workers[0]):
            assert time.monotonic() < until, "the worker says nothing"
            time.sleep(0.01)
        self.is_heard = True
        return self.model.encode_documents(documents)


def test_a_worker_and_this_process_share_the_batches(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = Waiting()

    class Noted(Worker):
        """Says one thing after each batch that this process has encoded, however quick it is."""

        def __init__(self, target: str, task: str) -> None:
            super().__init__(target, task)
            model.workers.append(self)

        def has_message(self) -> bool:
            return model.is_heard and super().has_message()

        def receive(self) -> Any:
            model.is_heard = False
            return super().receive()

    monkeypatch.setattr(encoders, "Worker", Noted)
    rng = np.random.default_rng(3)
    batches = [
        [Document(f"d{b}-{i}", {"title": " ".join(rng.choice(WORDS, 4))}) for i in range(5)]
        for b in range(6)
    ]
    found = list(encode_batches(batches, model, bundle, 2))

    assert model.encoded == 3, "the worker has encoded the others"
    assert [documents for documents, _ in found] == batches
    for documents, encoded in found:
        alone = planted_model().encode_documents([{"title": d.fields["title"]} for d in documents])
        for name, array in alone.arrays().items():
            np.testing.assert_array_equal(encoded.arrays()[name], array)

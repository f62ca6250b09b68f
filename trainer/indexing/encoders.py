"""Encode batches of documents with a model on several cores.

This process reads and writes; each of p - 1 worker processes opens the model of the bundle and takes every (p - 1)-th
batch. Results come in the order of the batches and do not depend on p.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

from fullrank.bundle import open_model
from fullrank.bundle.write import Batch
from fullrank.encoding import Encoded
from fullrank.models.contract import Model
from fullrank.storage.documents import Document
from fullrank.workers import Worker

Documents = Sequence[Document]


def encode_batches(
    batches: Iterable[Documents], model: Model, bundle: Path, processes: int
) -> Generator[Batch, None, None]:
    """Encode batches in order; each worker has at most one of them.

    Args:
        batches: of documents.
        model: the model.
        bundle: where worker processes find the same model.
        processes: p; 1 encodes in this process.

    Returns:
        An iterator over (batch, its encoding).

    Raises:
        FullrankError: a worker died.
        Exception: any error of the model.
    """
    if processes == 1:
        for batch in batches:
            yield batch, model.encode_documents(_texts(batch))
        return
    busy: deque[tuple[Documents, Worker]] = deque()
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker("trainer.indexing.encoders:work", "encodes documents"))
            for _ in range(processes - 1)
        ]
        for worker in workers:
            worker.send(bundle)
        for batch in batches:
            if len(busy) < len(workers):
                worker = workers[len(busy)]
                worker.send(_texts(batch))
                busy.append((batch, worker))
                continue
            # Receive before sending: if both ends were sending, neither would return.
            done, worker = busy.popleft()
            encoded = worker.receive()
            worker.send(_texts(batch))
            busy.append((batch, worker))
            yield done, encoded
        while busy:
            done, worker = busy.popleft()
            yield done, worker.receive()


def _texts(batch: Documents) -> list[dict[str, str]]:
    """Return the text fields of each document."""
    return [{k: v for k, v in d.fields.items() if isinstance(v, str)} for d in batch]


def work(connection: Connection) -> None:
    """Encode the texts that arrive with the model of a bundle; runs in a worker process."""
    bundle: Path = connection.recv()
    model: Model | None = None
    while True:
        texts = connection.recv()
        try:
            if model is None:
                _, model = open_model(bundle)
            answer: Encoded | Exception = model.encode_documents(texts)
        except Exception as error:
            answer = error
        connection.send(answer)

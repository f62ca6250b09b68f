"""Encode batches of documents with a model on several cores.

Each of p - 1 worker processes opens the model of the bundle. This process reads and writes, gives each idle worker the
next batch, and encodes one itself when the next result is not there yet. Results come in the order of the batches and
do not depend on p.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from fullrank.bundle import open_model
from fullrank.bundle.write import Batch
from fullrank.encoding import Encoded
from fullrank.models.contract import Model
from fullrank.storage.documents import Document
from fullrank.workers import Worker

Documents = Sequence[Document]

# Batches for each process that are encoded but not written yet, or being encoded.
_AHEAD = 2


@dataclass
class _Taken:
    """A batch, and its encoding or the worker that has it."""

    documents: Documents
    encoded: Encoded | Worker


def encode_batches(
    batches: Iterable[Documents], model: Model, bundle: Path, processes: int
) -> Generator[Batch, None, None]:
    """Encode batches in order; each worker has at most one of them.

    Args:
        batches: of documents.
        model: the model.
        bundle: where worker processes find the same model.
        processes: p.

    Returns:
        An iterator over (batch, its encoding).

    Raises:
        FullrankError: a worker died.
        Exception: any error of the model.
    """
    rest, taken = iter(batches), deque[_Taken]()
    with ExitStack() as stack:
        starting = [
            stack.enter_context(
                Worker("fullrank_trainer.indexing.encoders:work", "encodes documents")
            )
            for _ in range(processes - 1)
        ]
        for worker in starting:
            worker.send(bundle)
        idle: list[Worker] = []
        while True:
            for worker in [worker for worker in starting if worker.has_message()]:
                worker.receive()
                starting.remove(worker)
                idle.append(worker)
            for one in taken:
                # Received even if it is not the next result, because a worker waits until its result is taken.
                if isinstance(one.encoded, Worker) and one.encoded.has_message():
                    _receive(one, idle)
            while idle and (documents := next(rest, None)) is not None:
                worker = idle.pop()
                worker.send(_texts(documents))
                taken.append(_Taken(documents, worker))
            if taken and isinstance(encoded := taken[0].encoded, Encoded):
                yield taken.popleft().documents, encoded
            elif len(taken) < _AHEAD * processes and (documents := next(rest, None)) is not None:
                taken.append(_Taken(documents, model.encode_documents(_texts(documents))))
            elif taken:
                _receive(taken[0], idle)
            else:
                return


def _receive(one: _Taken, idle: list[Worker]) -> None:
    """Wait for the encoding of a batch; its worker is idle then."""
    worker = one.encoded
    if isinstance(worker, Worker):
        one.encoded = worker.receive()
        idle.append(worker)


def _texts(batch: Documents) -> list[dict[str, str]]:
    """Return the text fields of each document."""
    return [{k: v for k, v in d.fields.items() if isinstance(v, str)} for d in batch]


def work(connection: Connection) -> None:
    """Open the model of a bundle, say so, then encode the texts that arrive; runs in a worker process."""
    try:
        _, model = open_model(connection.recv())
    except Exception as error:
        connection.send(error)
        raise
    connection.send(None)
    while True:
        texts = connection.recv()
        try:
            answer: Encoded | Exception = model.encode_documents(texts)
        except Exception as error:
            answer = error
        connection.send(answer)

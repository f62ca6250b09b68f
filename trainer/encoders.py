"""Documents through a model's own front door, batch by batch, on several cores.

Each worker process maps the bundle's model for itself and takes every p-th batch; what comes out
is in the order of what went in, bit for bit whatever p is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from fullrank.bundle.catalog import open_model
from fullrank.bundle.write import Batch
from fullrank.encoding import Encoded
from fullrank.errors import FullrankError
from fullrank.model import Model
from fullrank.storage.documents import Document
from fullrank.workers import Worker

Documents = Sequence[Document]


def encode_batches(
    batches: Iterable[Documents], model: Model, bundle: Path, processes: int
) -> Generator[Batch, None, None]:
    """Each batch and its encoding, in order; at most ``processes`` batches are in memory.

    bundle     where worker processes find the same model
    processes  that encode: this one alone, or so many workers, all started at once

    Raises FullrankError when a worker dies, and whatever the model raises.
    """
    if processes == 1:
        for batch in batches:
            yield batch, model.encode_documents(_texts(batch))
        return
    workers: list[Worker] = []
    busy: deque[tuple[Documents, Worker]] = deque()
    try:
        for _ in range(processes):
            workers.append(Worker.start("trainer.encoders"))
            _send(workers[-1], bundle)
        for batch in batches:
            if len(busy) < processes:
                worker = workers[len(busy)]
                _send(worker, _texts(batch))
                busy.append((batch, worker))
                continue
            # First an answer, then the next batch: both ends sending would wait for ever.
            done, worker = busy.popleft()
            encoded = _answer(worker)
            _send(worker, _texts(batch))
            busy.append((batch, worker))
            yield done, encoded
        while busy:
            done, worker = busy.popleft()
            yield done, _answer(worker)
    finally:
        for worker in workers:
            worker.kill()
            worker.connection.close()


def _texts(batch: Documents) -> list[dict[str, str]]:
    return [{k: v for k, v in d.fields.items() if isinstance(v, str)} for d in batch]


def _send(worker: Worker, message: object) -> None:
    try:
        worker.connection.send(message)
    except OSError as error:
        raise _died() from error


def _answer(worker: Worker) -> Encoded:
    try:
        answer = worker.connection.recv()
    except (EOFError, OSError) as error:
        raise _died() from error
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, Encoded)
    return answer


def _died() -> FullrankError:
    return FullrankError("a process that encodes documents died; is there memory left?")


def work(descriptor: int) -> None:
    """What a worker process does with its end of the pipe; it ends with its parent."""
    connection = Connection(descriptor)
    model: Model | None = None
    try:
        bundle = connection.recv()
        while True:
            texts = connection.recv()
            try:
                if model is None:
                    _, model = open_model(bundle)
                answer: Encoded | Exception = model.encode_documents(texts)
            except Exception as error:
                answer = error
            connection.send(answer)
    except (EOFError, OSError):
        return

"""What counting takes from the driver of a training: on its own, and with tasks of a cluster on this machine.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.fleet.counting COLLECTION

Prints processor seconds of the driver; those of tasks are not included. Counted are the words of all read fields and
queries, the compounds, and the phrases of titles.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fullrank_fleet.cluster import LOCAL, joined
from fullrank_fleet.counting.counting import DistributedCounting
from fullrank_fleet.jobs.tasks import OnRay
from fullrank_fleet.remote import Folder
from fullrank_trainer.collection import Collection, read_collection
from fullrank_trainer.features.corpus import text_fields
from fullrank_trainer.features.counting import Counting, InThisProcess

Result = TypeVar("Result")


def main() -> None:
    """Print one row for each step of the driver."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("collection", type=Path)
    arguments = parser.parse_args()
    collection = timed("read", lambda: read_collection(arguments.collection))
    timed("count alone", lambda: count(InThisProcess(1), collection))
    with tempfile.TemporaryDirectory() as scratch, joined(LOCAL) as ray:
        counting = DistributedCounting(Folder(scratch), OnRay(ray))
        timed("count on a cluster", lambda: count(counting, collection))


def count(counting: Counting, collection: Collection) -> None:
    """Count what the recipe "fielded" reads."""
    fields = text_fields(collection)
    counting.words(collection, fields)
    counting.compounds(collection, fields)
    if "title" in fields:
        counting.phrases(collection, "title")


def timed(name: str, work: Callable[[], Result]) -> Result:
    """Do some work and print the processor seconds of this process."""
    began, before = time.monotonic(), time.process_time()
    result = work()
    print(
        f"{name:20}{time.process_time() - before:8.2f} s of the driver"
        f"{time.monotonic() - began:8.2f} s passed"
    )
    return result


if __name__ == "__main__":
    main()

"""Search a bundle from Python, without a server, and see why a document was found.

    python -m examples.search_from_python [BUNDLE]

Shows hits, their scores, the three parts of a score (dense, lexical, bias) and the words behind it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from examples.shop import train_bm25
from fullrank import open_bundle


def main(path: Path, query: str = "acme rain boots") -> None:
    """Print the best three documents for a query and the words behind their scores."""
    bundle = open_bundle(path)
    found = bundle.search(query, limit=3, explain=True)
    print(f"{found.total} documents, certified: {found.certified}")
    for hit in found:
        print(f"{hit.score:6.2f}  {hit.id:14} {hit.fields['title']}")
        print(f"        dense {hit.dense:.2f}, lexical {hit.lexical:.2f}, bias {hit.bias:.2f}")
        for word in hit.words or []:
            print(f"        {word.word}: {word.dense + word.lexical:.2f}")

    cheap = bundle.search(query, limit=3, filter={"price": {"lte": 40}}, exclude=["rain-boots-0"])
    print("up to 40:", [(hit.id, hit.fields["price"]) for hit in cheap])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else train_bm25(Path(tempfile.mkdtemp())))

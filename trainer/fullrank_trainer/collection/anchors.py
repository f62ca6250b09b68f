"""Texts of links between documents.

    anchors.tsv[.gz]    anchor<TAB>corpus-id, with that header: what a link says, and the document that it leads to

Documents get the texts that lead to them as a field "anchors", the most frequent first. One text in ten, by a hash that
never changes, is left out, so that validation can ask for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

from fullrank.storage.documents import Document
from fullrank_trainer.collection.lines import Lines, find_file

FIELD = "anchors"
_HEADER = ["anchor", "corpus-id"]
_HELD_OUT = 26  # of 256
_MOST = 50  # texts of a document


@dataclass(frozen=True)
class Anchors:
    """What links say.

    Attributes:
        learned: document → the texts that training reads, and how many links have each.
        held_out: text that training does not read → documents that its links lead to.
    """

    learned: Mapping[str, Counter[str]] = field(default_factory=dict)
    held_out: Mapping[str, list[str]] = field(default_factory=dict)

    def add_to(self, documents: Iterable[Document]) -> Iterator[Document]:
        """Yield documents with their anchors, unless they have a field of that name."""
        for document in documents:
            texts = self.learned.get(document.id)
            if texts and FIELD not in document.fields:
                joined = "\n".join(text for text, _ in texts.most_common(_MOST))
                document = replace(document, fields={**document.fields, FIELD: joined})
            yield document


def read_anchors(folder: Path, digests: list[tuple[str, str]]) -> Anchors:
    """Read the anchors of a folder that may have some.

    Args:
        folder: with the corpus.
        digests: gets the hash of the file.

    Raises:
        CollectionError: the header or a line is malformed.
    """
    path = find_file(folder, "anchors.tsv")
    if path is None:
        return Anchors()
    lines = Lines(path)
    learned: dict[str, Counter[str]] = {}
    held_out: dict[str, list[str]] = {}
    for number, line in lines:
        try:
            cells = line.decode("utf-8-sig").rstrip("\r\n").split("\t")
        except UnicodeDecodeError:
            raise lines.error(number, "not utf-8") from None
        if number == 1:
            if cells != _HEADER:
                raise lines.error(1, "expected the header anchor<TAB>corpus-id")
        elif len(cells) != len(_HEADER):
            lines.refuse(lines.error(number, "expected anchor<TAB>corpus-id"))
        elif text := " ".join(cells[0].split()):
            key = text.casefold().encode()
            if blake2b(key, digest_size=1, person=b"anchors").digest()[0] < _HELD_OUT:
                ids = held_out.setdefault(text, [])
                if cells[1] not in ids:
                    ids.append(cells[1])
            else:
                learned.setdefault(cells[1], Counter())[text] += 1
    lines.check()
    digests.append((FIELD, lines.digest()))
    return Anchors(learned, held_out)

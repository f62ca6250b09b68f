"""Write the demo collection: the docstrings of the installed numpy and scipy, without a download.

    documents   one for each distinct docstring of a public function or class; `title` is its qualified
                name, `text` the docstring without its first sentence and its See Also section
    queries     one for each distinct first sentence, e.g. "Convolve two N-dimensional arrays."
    relevance   grade 2: the docstrings that begin with the sentence
                grade 1: the functions that their See Also sections name

The first sentence and the See Also section are never indexed, so a query cannot find its answer by its own words or by
a list of names. A hash of its id puts a query into a split: 80 % train, 10 % valid, 10 % test. The same versions of
numpy and scipy give the same files, byte for byte.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pkgutil
import re
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import orjson

from fullrank_trainer.collection.judgements import Qrels
from fullrank_trainer.lines import QRELS_HEADER

PACKAGES = ("numpy", "scipy")
OWN_GRADE = 2
SEE_ALSO_GRADE = 1

# Not public: tests, build tools, old names of modules that have moved.
_SKIPPED_MODULES = {
    *("conftest", "core", "cython_special", "distutils", "f2py"),
    *("matlib", "mypy_plugin", "setup", "testing", "tests", "testutils"),
}
_MIN_TEXT = 40  # characters left to index; shorter texts only repeat their first sentence

_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)\s+(?=[A-Z`\"(\[])")
_SECTION = re.compile(r"^[^\n]+\n[-=]{3,}[ \t]*$", re.MULTILINE)
_SEE_ALSO = re.compile(r"^See [Aa]lso[ \t]*\n[-=]{3,}[ \t]*$", re.MULTILINE)
_SIGNATURE = re.compile(r"[\w.]+\(.*\)?", re.DOTALL)
_ROLE = re.compile(r":[\w:]+:`~?([^`]+)`")
_NAME = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Docstring:
    """The parts of one docstring.

    Attributes:
        name: the shortest qualified public name of the object.
        aliases: every qualified name with this docstring, `name` included.
        text: the rest without See Also.
    """

    name: str
    aliases: tuple[str, ...]
    sentence: str
    text: str
    see_also: tuple[str, ...]


def write_demo_collection(folder: str | Path) -> Path:
    """Write the demo collection into a folder, create it if needed, and return its path."""
    folder = Path(folder)
    docstrings = read_docstrings()
    queries, qrels = _judge(docstrings)
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("wb") as corpus:
        for doc in docstrings:
            line = {
                "_id": doc.name,
                "title": doc.name,
                "text": doc.text,
                "module": doc.name.rpartition(".")[0],
            }
            corpus.write(orjson.dumps(line) + b"\n")
    with (folder / "queries.jsonl").open("wb") as file:
        for id, text in queries.items():
            file.write(orjson.dumps({"_id": id, "text": text}) + b"\n")
    files = {split: ["\t".join(QRELS_HEADER)] for split in ("train", "valid", "test")}
    for query, grades in qrels.items():
        files[split_of(query)] += [
            f"{query}\t{document}\t{grade}" for document, grade in sorted(grades.items())
        ]
    for split, lines in files.items():
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def split_of(query_id: str) -> str:
    """Return train, valid or test, by a hash of the id."""
    bucket = int.from_bytes(hashlib.sha256(query_id.encode()).digest()[:4], "big") % 10
    return "test" if bucket == 0 else "valid" if bucket == 1 else "train"


def read_docstrings() -> list[Docstring]:
    """Return all distinct docstrings with text to index, in ascending order of name."""
    names_of: dict[str, list[str]] = {}
    for name, docstring in _public_docstrings():
        names_of.setdefault(docstring, []).append(name)
    found = (_parse_docstring(docstring, names) for docstring, names in names_of.items())
    distinct: dict[str, Docstring] = {}
    for doc in sorted(filter(None, found), key=lambda doc: doc.name):
        distinct.setdefault(doc.text, doc)
    return list(distinct.values())


def _public_docstrings() -> Iterator[tuple[str, str]]:
    with warnings.catch_warnings():
        # Deprecated namespaces warn when they are read.
        warnings.simplefilter("ignore")
        # Import all before reading any, because importing one adds names to others.
        modules = [module for package in PACKAGES for module in _public_modules(package)]
        for module in modules:
            for name in sorted(getattr(module, "__all__", None) or dir(module)):
                value = None if name.startswith("_") else getattr(module, name, None)
                if not callable(value) or isinstance(value, ModuleType):
                    continue
                docstring = inspect.getdoc(value)
                if docstring:
                    yield f"{module.__name__}.{name}", docstring


def _public_modules(name: str) -> Iterator[ModuleType]:
    try:
        module = importlib.import_module(name)
    except Exception:
        return
    yield module
    for child in pkgutil.iter_modules(getattr(module, "__path__", [])):
        if not child.name.startswith("_") and child.name not in _SKIPPED_MODULES:
            yield from _public_modules(f"{name}.{child.name}")


def _parse_docstring(docstring: str, names: list[str]) -> Docstring | None:
    docstring = docstring.strip()
    head, _, body = docstring.partition("\n\n")
    while _SIGNATURE.match(head) and body:
        head, _, body = body.strip().partition("\n\n")
    if _SECTION.match(head):
        return None  # no summary: the docstring starts with a section
    first, *rest = _SENTENCE_END.split(" ".join(head.split()), maxsplit=1)
    body, see_also = _without_see_also(body)
    text = "\n\n".join(part for part in (" ".join(rest), textwrap.dedent(body).strip()) if part)
    if len(text) < _MIN_TEXT or len(first.split()) < 2:
        return None
    ordered = sorted(set(names), key=lambda name: (name.count("."), len(name), name))
    return Docstring(ordered[0], tuple(ordered), first, text, see_also)


def _without_see_also(body: str) -> tuple[str, tuple[str, ...]]:
    start = _SEE_ALSO.search(body)
    if start is None:
        return body, ()
    end = _SECTION.search(body, start.end())
    section = body[start.end() : end.start() if end else len(body)]
    rest = body[: start.start()] + (body[end.start() :] if end else "")
    return rest, tuple(_listed_names(section))


def _listed_names(section: str) -> Iterator[str]:
    """Iterate over the names in a See Also section: `a, b : description`, continued on indented lines."""
    for line in section.splitlines():
        if not line or line[0].isspace():
            continue
        listed = _ROLE.sub(r"\1", line).partition(" :")[0]
        for item in listed.replace("`", "").rstrip(":").split(","):
            if _NAME.fullmatch(item.strip()):
                yield item.strip()


def _judge(docstrings: list[Docstring]) -> tuple[dict[str, str], Qrels]:
    """Return (query id → text, judgements). Docstrings with the same first sentence share a query."""
    by_alias = {alias: doc.name for doc in reversed(docstrings) for alias in doc.aliases}
    query_of_sentence: dict[str, str] = {}
    queries: dict[str, str] = {}
    qrels: dict[str, dict[str, int]] = {}
    for doc in docstrings:
        sentence = doc.sentence.casefold()
        query = query_of_sentence.setdefault(sentence, f"summary/{doc.name}")
        queries.setdefault(query, doc.sentence)
        grades = qrels.setdefault(query, {})
        grades[doc.name] = OWN_GRADE
        for name in doc.see_also:
            target = _resolve(name, doc, by_alias)
            if target is not None:
                grades.setdefault(target, SEE_ALSO_GRADE)
    return queries, qrels


def _resolve(name: str, doc: Docstring, by_alias: dict[str, str]) -> str | None:
    """Find the document that a See Also name means, from the docstring's own module outwards."""
    for alias in doc.aliases:
        module = alias.rpartition(".")[0]
        while module:
            if (target := by_alias.get(f"{module}.{name}")) is not None:
                return target
            module = module.rpartition(".")[0]
    candidates = (name, name.replace("np.", "numpy.", 1), *(f"{root}.{name}" for root in PACKAGES))
    return next((by_alias[option] for option in candidates if option in by_alias), None)

"""Collections whose judgements have weights."""

from __future__ import annotations

from pathlib import Path

HEADERS = {"weights": "weight", "people": "people"}


def judged_pairs(folder: Path, split: str) -> list[tuple[str, str]]:
    """Read the pairs of a split that are judged relevant."""
    lines = (folder / "qrels" / f"{split}.tsv").read_text("utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    return [(query, document) for query, document, grade in rows if int(grade) > 0]


def write_values(
    folder: Path, place: str, split: str, values: dict[tuple[str, str], float]
) -> None:
    """Write weights/<split>.tsv or people/<split>.tsv."""
    (folder / place).mkdir(exist_ok=True)
    lines = [f"query-id\tcorpus-id\t{HEADERS[place]}"]
    lines += [f"{query}\t{document}\t{value:g}" for (query, document), value in values.items()]
    (folder / place / f"{split}.tsv").write_text("\n".join(lines) + "\n", "utf-8")

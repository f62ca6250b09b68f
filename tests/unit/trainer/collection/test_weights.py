"""Weights of judgements: what is read, and what is refused with file, line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from fullrank.errors import CollectionError
from fullrank_trainer.collection import Collection, read_collection

FILES = {
    "corpus.jsonl": '{"_id": "a", "text": "first"}\n{"_id": "b", "text": "second"}\n',
    "queries.jsonl": '{"_id": "q1", "text": "one"}\n{"_id": "q2", "text": "two"}\n',
    "qrels/train.tsv": "query-id\tcorpus-id\tscore\nq1\ta\t1\nq1\tb\t1\nq2\ta\t0\n",
}
HEADER = "query-id\tcorpus-id\tweight\n"


def read(folder: Path, *, strict: bool = True, **files: str) -> Collection:
    named = {name.replace("__", "/") + ".tsv": text for name, text in files.items()}
    for name, text in {**FILES, **named}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    return read_collection(folder, strict=strict)


def test_weights_and_people_are_read(tmp_path: Path) -> None:
    people = "query-id\tcorpus-id\tpeople\nq1\ta\t3\n"
    found = read(tmp_path, weights__train=f"{HEADER}q1\ta\t.5e-1\n".replace(".5", "0.5"))
    assert found.weights == {"train": {"q1": {"a": 0.05}}}
    assert found.people == {}
    other = read(tmp_path, people__train=people)
    assert other.people == {"train": {"q1": {"a": 3}}}
    assert other.fingerprint != found.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "query-id\tcorpus-id\tscore\n",
            "train.tsv:1: expected the header 'query-id corpus-id weight'",
        ),
        ("", "empty; the header line is missing"),
        (f"{HEADER}q1\ta\n", "train.tsv:2: expected 3 tab-separated columns, got 2"),
        (f"{HEADER}q1\ta\t0\n", "train.tsv:2: field 'weight': expected a number above 0, got '0'"),
        (f"{HEADER}q1\ta\t-1\n", "expected a number above 0, got '-1'"),
        (f"{HEADER}q1\ta\tnan\n", "expected a number above 0, got 'nan'"),
        (f"{HEADER}q1\ta\t1e999\n", "expected a number above 0, got '1e999'"),
        (f"{HEADER}q1\ta\t1\nq1\ta\t2\n", "train.tsv:3: field 'weight': 'q1' 'a' had 1 above"),
        (f"{HEADER}q2\ta\t1\n", "train.tsv:2: 'q2' 'a' is not judged to be relevant"),
        (f"{HEADER}q9\ta\t1\n", "train.tsv:2: 'q9' 'a' is not judged to be relevant"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CollectionError) as raised:
        read(tmp_path, weights__train=text)
    assert message in str(raised.value)


def test_weights_of_pairs_without_a_judgement_are_skipped_unless_strict(tmp_path: Path) -> None:
    found = read(tmp_path, strict=False, weights__train=f"{HEADER}q1\tz\t1\nq1\tb\t2\n")
    assert found.weights == {"train": {"q1": {"b": 2}}}
    assert found.report.values_without_judgement == 1


def test_weights_need_judgements(tmp_path: Path) -> None:
    with pytest.raises(
        CollectionError, match=r"weights/recent.tsv:1: there is no qrels/recent.tsv"
    ):
        read(tmp_path, weights__recent=HEADER)


def test_people_are_whole_numbers(tmp_path: Path) -> None:
    with pytest.raises(
        CollectionError, match=r"field 'people': expected a number above 0, got '1.5'"
    ):
        read(tmp_path, people__train="query-id\tcorpus-id\tpeople\nq1\ta\t1.5\n")

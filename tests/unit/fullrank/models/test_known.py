"""Unknown words of a query are replaced by known ones one edit away, and nothing else is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank import open_bundle
from fullrank.live import Operation, View
from fullrank.live.known import did_you_mean
from fullrank.models.known import KnownWords
from fullrank.models.language import LanguageModel, no_translation
from fullrank.models.mixed import MixedModel
from fullrank.models.unseen import live_model
from fullrank.storage.documents import Document
from fullrank.text.features import Vocabulary
from fullrank.text.spelling import MIN_LETTERS
from tests.bundles import CORPUS, linear_model, make_bundle

MODEL = linear_model(CORPUS, n_dense=2)
WORDS = MODEL.sparse.words.words


def language_model(words: Sequence[str]) -> LanguageModel:
    size = len(words)
    settings = {
        "latent": "none", "lambda1": 0.5, "lambda2": 1.0, "iterations": 0, "prior": 0.0,
        "fields": ["title", "text"], "query_fields": ["title"],
    }  # fmt: skip
    nothing = np.zeros((size, 0), np.float32)
    share = np.full(size, 1 / size, np.float32)
    return LanguageModel(settings, Vocabulary(words), share, nothing, nothing, no_translation(size))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("copy files", None),
        ("cpoy files", "copy files"),
        ("CPOY the  fyles!", "copy the files"),
        ("remot-host", "remote host"),
        ("lst", None),  # too short
        ("copy4", None),  # has a digit
        ("zzzqqq", None),
        ("", None),
        (" ".join(["cpoy"] * 33), None),  # a document, not a query
    ],
)
@pytest.mark.parametrize(
    "model",
    [MODEL, MixedModel([MODEL, language_model(["copy"])], [1.0, 1.0]), live_model(MODEL)],
    ids=["linear", "mixed", "open"],
)
def test_a_word_one_edit_away_was_meant(model: object, typed: str, meant: str | None) -> None:
    assert KnownWords(model).corrected(typed) == meant  # type: ignore[arg-type]


def edits(word: str) -> set[str]:
    """Return all texts one edit away from a word, of the letters a to z."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    found = {a + b[1:] for a, b in cuts if b}
    found |= {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    found |= {a + c + b[1:] for a, b in cuts if b for c in letters}
    return found | {a + c + b for a, b in cuts for c in letters}


@given(st.sampled_from([word for word in WORDS if word.isascii()]), st.data())
def test_what_was_meant_is_known_and_one_edit_away(word: str, data: st.DataObject) -> None:
    typed = data.draw(st.sampled_from(sorted(edits(word) - {""})))
    meant = KnownWords(MODEL).corrected(typed)
    near = {known for known in WORDS if typed in edits(known)}
    if typed in WORDS or len(typed) < MIN_LETTERS:
        assert meant is None
    else:
        assert meant in near


def test_what_any_model_of_a_mix_knows_is_known() -> None:
    assert KnownWords(MODEL).corrected("remoce") == "remote"
    mix = MixedModel([MODEL, language_model(["remoce"])], [1.0, 1.0])
    assert KnownWords(mix).corrected("remoce") is None
    stems = replace(language_model(["remoce"]), settings={"stem": "english"})
    assert KnownWords(MixedModel([MODEL, stems], [1.0, 1.0])).corrected("remoce") == "remote"


def test_another_form_of_a_known_word_is_known() -> None:
    documents = [Document("a", {"title": "crème", "text": "crème brûlée"})]
    model = linear_model(documents)
    folding = replace(model, sparse=replace(model.sparse, folded=0.9, plurals=0.8))
    assert KnownWords(folding).corrected("creme") is None
    assert KnownWords(model).corrected("creme") == "crème"
    assert KnownWords(folding).corrected("crene") is None  # two edits: the letter and its accent


def test_a_word_of_a_live_document_is_known(tmp_path: Path) -> None:
    version = make_bundle(tmp_path, "docs")
    view = View.of(open_bundle(tmp_path / version))
    assert did_you_mean(view, "remoce host") == "remote host"
    written = view.apply([Operation(1, "x", {"title": "remoce", "text": "new"})])
    assert did_you_mean(written, "remoce host") is None
    assert did_you_mean(written, "remoke host") == "remote host"
    assert did_you_mean(written.apply([Operation(2, "x", None)]), "remoce host") == "remote host"

"""From a log to a published version, or to none."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fullrank.bundle import find_bundle, open_bundle
from fullrank.bundle.catalog import publish
from fullrank.errors import FullrankError
from fullrank.events.log import EVENTS, LISTS, EventLog
from fullrank.events.records import Event, ServedList, normalised
from fullrank.events.segments import SegmentWriter
from fullrank.progress import Reporter
from fullrank.storage.documents import Document
from fullrank_trainer.clicks import join
from fullrank_trainer.clicks.export import split_of
from fullrank_trainer.clicks.weights import Rule
from fullrank_trainer.collection import read_collection
from fullrank_trainer.promotion.retrain import (
    SCRATCH,
    Retrained,
    RetrainRuns,
    add_judgements,
    for_clicks,
    recipe_of,
    retrain,
    scratch_folder,
)
from fullrank_trainer.recipes.recipe import load_recipe
from fullrank_trainer.recipes.settings import AutoSettings
from fullrank_trainer.training.warm import trained_card
from tests.bundles import make_bundle

DOCUMENTS = [
    Document(f"d{i:02}", {"title": f"thing{i}", "text": "a thing that people look for"})
    for i in range(40)
]
Log = tuple[list[ServedList], list[Event]]
DAY = 86_400.0


@pytest.fixture(autouse=True)
def _equally_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a search takes here says nothing about the code."""
    monkeypatch.setattr("fullrank_trainer.promotion.gates.slowest", lambda *_: (0.001, 0.001))


@pytest.fixture
def bundles(tmp_path: Path) -> Path:
    make_bundle(tmp_path / "bundles", "shop", DOCUMENTS)
    return tmp_path / "bundles"


@dataclass(frozen=True)
class Learned:
    """A folder of bundles whose active version has learned from a log.

    Attributes:
        bundles: The folder.
        before: The version that was active before.
        log: All people click what they search for.
        found: What the training returned; its paths lead into the folder.
    """

    bundles: Path
    before: Path
    log: EventLog
    found: Retrained


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    """A training that no test may change."""
    root = tmp_path_factory.mktemp("learned")
    make_bundle(root / "bundles", "shop", DOCUMENTS)
    before = find_bundle(root / "bundles", "shop")
    log = logged(root / "log", clicked(range(40)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fullrank_trainer.promotion.gates.slowest", lambda *_: (0.001, 0.001))
        found = run(root / "bundles", log)
    return Learned(root / "bundles", before, log, found)


@pytest.fixture
def learned(trained_once: Learned, tmp_path: Path) -> Learned:
    """A copy that a test may train further."""
    bundles = tmp_path / "learned"
    shutil.copytree(trained_once.bundles, bundles, symlinks=True)
    published = trained_once.found.published
    assert published is not None, trained_once.found.gates
    found = replace(trained_once.found, published=bundles / "shop" / published.name)
    return Learned(bundles, bundles / "shop" / trained_once.before.name, trained_once.log, found)


def clicked(
    wanted: Sequence[int], lists: int = 800, since: float = 1.8e9, model: str = "shop-1-1"
) -> Log:
    """People search `alias i` and click document wanted[i], wherever it is shown."""
    draw = random.Random(1)
    shown, events = [], []
    for number in range(lists):
        i = draw.randrange(len(DOCUMENTS))
        ids = draw.sample([document.id for document in DOCUMENTS], 10)
        target = DOCUMENTS[wanted[i]].id
        if target not in ids:
            ids[draw.randrange(10)] = target
        texts = {"user_id": f"u{draw.randrange(60)}"}
        id, at = f"{since}-{number}", since + 600.0 * number
        shown.append(ServedList(id, at, f"alias{i} thing", ids, model=model, texts=texts))
        events.append(Event("click", at + 5, {"query_id": id, **texts}, target))
    return shown, events


def logged(folder: Path, *parts: Log) -> EventLog:
    for lists, events in parts:
        for kind, records in ((LISTS, lists), (EVENTS, events)):
            writer = SegmentWriter(folder, kind)
            writer.append([record.line() for record in records])
            writer.close()
    return EventLog(folder)


def run(
    bundles: Path, log: EventLog, recipe: str | None = "word-translation", **options: Any
) -> Retrained:
    return retrain(
        bundles,
        find_bundle(bundles, "shop"),
        log,
        recipe=recipe,
        reporter=lambda: Reporter(quiet=True),
        **options,
    )


def test_a_better_candidate_is_published_with_its_gates(trained_once: Learned) -> None:
    bundles, found, old = trained_once.bundles, trained_once.found, trained_once.before
    assert found.published is not None, found.gates
    assert found.published == find_bundle(bundles, "shop") != old
    opened = open_bundle(found.published)
    assert opened.search("alias7 thing", 1)[0].id == "d07"
    assert opened.card["clicks"] | {"published": found.published.name} == json.loads(
        json.dumps(found.as_dict())
    )
    assert opened.card["clicks"]["active"] == old.name
    assert not (bundles / SCRATCH / "shop").exists()


def test_a_worse_candidate_changes_nothing(learned: Learned, tmp_path: Path) -> None:
    # Of the time of training all clicks mean something else; the newest ones are as they were.
    wrong = clicked([(i + 7) % 40 for i in range(40)], since=1.8e9 - 30 * DAY)
    later = clicked(range(40), lists=400)
    found = run(learned.bundles, logged(tmp_path / "moved", wrong, later))
    assert found.published is None
    assert "clicks" in [gate.name for gate in found.gates if not gate.passed]
    assert find_bundle(learned.bundles, "shop") == learned.found.published


def test_without_clicks_there_is_nothing_to_learn(bundles: Path, tmp_path: Path) -> None:
    with pytest.raises(FullrankError, match="no clicks"):
        run(bundles, EventLog(tmp_path / "none"))
    assert not (bundles / SCRATCH / "shop").exists()


def test_another_model_of_the_same_log_teaches_nothing(bundles: Path, tmp_path: Path) -> None:
    """Its people click something else for the same words, four times as often."""
    other = clicked([(i + 7) % 40 for i in range(40)], 3200, since=1.9e9, model="other-1-1")
    found = run(bundles, logged(tmp_path / "log", clicked(range(40)), other))
    assert found.published is not None, found.gates
    assert open_bundle(found.published).search("alias7 thing", 1)[0].id == "d07"
    assert found.counts["lists_of_another_model"] == 3200
    with pytest.raises(FullrankError, match="no clicks"):
        run(bundles, logged(tmp_path / "alone", other))


def test_programs_teach_nothing(bundles: Path, tmp_path: Path) -> None:
    lists, events = clicked(range(40), lists=100)
    programs = [replace(event, is_bot=True) for event in events]
    with pytest.raises(FullrankError, match="no clicks"):
        run(bundles, logged(tmp_path / "log", (lists, programs)))


def test_two_trainings_of_one_model_exclude_each_other(bundles: Path) -> None:
    scratch = bundles / SCRATCH
    with scratch_folder(scratch / "shop") as folder:
        folder.mkdir()
        with pytest.raises(RetrainRuns, match="another fullrank retrain of shop runs"):
            run(bundles, EventLog(bundles / "none"))
        assert folder.is_dir()
        # Another model is free.
        with scratch_folder(scratch / "shop2") as other:
            assert not other.exists()
    # What a killed run left is removed.
    (scratch / "shop" / "mixture").mkdir(parents=True)
    with scratch_folder(scratch / "shop") as folder:
        assert not folder.exists()


@pytest.mark.parametrize("good", ["naive", "mixture", "both"])
def test_the_better_candidate_is_judged_and_published(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: str
) -> None:
    """One candidate knows what people mean; the other one knows something else, and ranks worse than the active one."""
    chosen: Rule = "naive" if good == "naive" else "mixture"
    other: Rule = "mixture" if chosen == "naive" else "naive"
    trained: dict[str, bytes] = {}

    def train(collection: Path, place: Path, name: str, **_: object) -> SimpleNamespace:
        trained[place.name] = (collection / "weights" / "train.tsv").read_bytes()
        shift = 0 if good == "both" or place.name.startswith(good) else 7
        documents = [
            Document(one.id, {"title": f"alias{(i + shift) % 40} thing", "text": "a thing"})
            for i, one in enumerate(DOCUMENTS)
        ]
        make_bundle(place, name, documents)
        return SimpleNamespace(path=find_bundle(place, name))

    monkeypatch.setattr("fullrank_trainer.promotion.retrain.train", train)
    # Mistakes of a day before, which the two rules weigh differently; the newest clicks have none.
    mistakes = clicked([(i + 3) % 40 for i in range(40)], lists=200, since=1.8e9 - 10 * DAY)
    found = run(bundles, logged(tmp_path / "log", mistakes, clicked(range(40))))
    assert [*trained] == ["naive", "mixture", f"{chosen}-final"]
    assert trained["naive"] != trained["mixture"]
    assert found.rule == chosen
    [gate, *_] = found.gates
    _, after = map(float, re.findall(r"(0\.\d{4}|1\.0000)", gate.reason))
    assert after == pytest.approx(found.candidates[chosen], abs=1e-4)
    assert after == 1
    if good != "both":
        assert found.candidates[other] < 0.5
    assert found.published is not None, found.gates
    assert open_bundle(found.published).search("alias7 thing", 1)[0].id == "d07"


def people_of(lists: Sequence[ServedList]) -> dict[str, int]:
    """Number people by their first list."""
    names = dict.fromkeys(served.person for served in lists)
    return {str(name): number for number, name in enumerate(names)}


def answering(folder: Path, shift: int, name: str = "shop") -> Path:
    """Make a bundle that answers `alias i` by document i + shift."""
    documents = [
        Document(one.id, {"title": f"alias{(i - shift) % 40} thing", "text": "a thing"})
        for i, one in enumerate(DOCUMENTS)
    ]
    make_bundle(folder, name, documents)
    return find_bundle(folder, name)


def faked(monkeypatch: pytest.MonkeyPatch, shifts: dict[str, int]) -> dict[str, bytes]:
    """Let a candidate answer `alias i` by document i + shift; return the weights it would have learned from."""
    seen: dict[str, bytes] = {}

    def train(collection: Path, place: Path, name: str, **_: object) -> SimpleNamespace:
        seen[place.name] = (collection / "weights" / "train.tsv").read_bytes()
        return SimpleNamespace(
            path=answering(place, shifts[place.name.removesuffix("-final")], name)
        )

    monkeypatch.setattr("fullrank_trainer.promotion.retrain.train", train)
    return seen


def test_those_who_choose_do_not_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the people want what one candidate finds, the others what the active version finds."""
    answering(bundles := tmp_path / "bundles", 7)
    faked(monkeypatch, {"naive": 0, "mixture": 3})
    lists, events = clicked(range(40))
    number = people_of(lists)
    lists = [replace(served, ids=[one.id for one in DOCUMENTS[:30]]) for served in lists]
    texts = {served.query_id: served for served in lists}
    changed = []
    for event in events:
        served = texts[event.texts["query_id"]]
        wanted = int(served.text.split()[0].removeprefix("alias")) % 20
        odd = number[str(served.person)] % 2
        changed.append(replace(event, object_id=DOCUMENTS[(wanted + 7 * odd) % 20].id))
    found = run(bundles, logged(tmp_path / "log", (lists, changed)))
    votes = join(lists, changed)
    days = sorted(votes.time[votes.clicked])
    newest = votes.time >= days[len(days) - int(0.2 * len(days))]
    judging = int((newest & votes.clicked & (votes.person % 2 == 1)).sum())
    assert f"of {judging} clicks" in found.gates[0].reason
    assert found.rule == "naive"
    after = float(found.gates[0].reason.split("-> ")[1].split(",")[0])
    assert found.candidates["naive"] > 0.5 > after + 0.2
    assert found.published is None


def test_clicks_that_judge_do_not_change_what_candidates_learn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as clicks, nor by the words that go together, nor by how people click."""
    answering(bundles := tmp_path / "bundles", 0)
    learned = []
    for shift in (0, 5):
        seen = faked(monkeypatch, {"naive": 30, "mixture": 30})
        newest = clicked([(i + shift) % 40 for i in range(40)], 30, since=1.8e9 + 20 * DAY)
        log = logged(tmp_path / str(shift), clicked(range(40), 150), newest)
        run(bundles, log)
        learned.append([sorted(seen[rule].splitlines()) for rule in ("naive", "mixture")])
    assert learned[0] == learned[1]


def imported(lists: int) -> Log:
    """People click document i for `alias i`, and the log does not say what else was shown."""
    shown, events = [], []
    for n in range(lists):
        ids = [DOCUMENTS[n % 40].id]
        served = ServedList(
            f"i{n}", 1.8e9 + n, f"alias{n % 40} thing", ids, "reported", only_clicked=True
        )
        shown.append(served)
        events.append(Event("click", 1.8e9 + n, {"query_id": f"i{n}"}, ids[0]))
    return shown, events


@pytest.mark.parametrize("shift", [0, 7])
def test_imported_clicks_judge_among_all_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    """A candidate that finds what nobody clicks fails, though no list is known."""
    answering(bundles := tmp_path / "bundles", 0)
    faked(monkeypatch, {"naive": shift})
    found = run(bundles, logged(tmp_path / "log", imported(400)))
    assert (found.published is not None) is (shift == 0)
    assert "; 80 clicks do not say what else was shown" in found.gates[0].reason
    after = float(found.gates[0].reason.split("-> ")[1].split(",")[0])
    assert (after == 1) is (shift == 0)


def test_judgements_are_added(bundles: Path, tmp_path: Path) -> None:
    judged = tmp_path / "judged"
    (judged / "qrels").mkdir(parents=True)
    ids = ("d01", "d02", "zz")
    (judged / "corpus.jsonl").write_text(
        "".join(f'{{"_id": "{id}", "title": "x"}}\n' for id in ids)
    )
    (judged / "queries.jsonl").write_text('{"_id": "1", "text": "number one"}\n')
    header = "query-id\tcorpus-id\tscore\n"
    for split, document in (("train", "d01"), ("valid", "d02")):
        (judged / "qrels" / f"{split}.tsv").write_text(header + f"1\t{document}\t1\n1\tzz\t1\n")
    log = logged(tmp_path / "log", clicked(range(40)))
    before = shutil.copytree(bundles, tmp_path / "before", symlinks=True)
    found = run(bundles, log, judged=judged)
    assert found.published is not None, found.gates
    assert open_bundle(found.published).search("number one", 1)[0].id == "d01"
    assert "valid" in [gate.name for gate in found.gates]
    (judged / "qrels" / "valid.tsv").unlink()
    found = run(before, log, judged=judged)
    assert found.published is not None, found.gates
    assert "valid" not in [gate.name for gate in found.gates]
    (judged / "qrels" / "train.tsv").write_text(header + "1\tzz\t1\n")
    with pytest.raises(FullrankError, match="judges no document"):
        run(bundles, log, judged=judged)
    for missing in ("qrels/train.tsv", "queries.jsonl"):
        (judged / missing).unlink()
        with pytest.raises(
            FullrankError, match=f"there is no {missing}; add it, or leave out --with"
        ):
            run(bundles, log, judged=judged)


def test_clicks_that_the_active_version_learned_from_do_not_judge(
    learned: Learned, tmp_path: Path
) -> None:
    first, bundles = clicked(range(40)), learned.bundles
    # Without newer clicks nobody can say whether another training is better.
    again = run(bundles, learned.log)
    assert again.published is None
    [gate] = [gate for gate in again.gates if gate.name == "clicks"]
    assert gate.reason.startswith("0 people")
    day = clicked(range(40), lists=150, since=1.8e9 + 20 * DAY)
    found = run(bundles, logged(tmp_path / "day", first, day))
    [gate] = [gate for gate in found.gates if gate.name == "clicks"]
    votes = join(first[0] + day[0], first[1] + day[1])
    judges = votes.clicked & (votes.person % 2 == 1)  # the others choose
    newer = int((judges & (votes.time > 1.8e9 + 20 * DAY - 1)).sum())
    assert f"of {newer} clicks" in gate.reason


def test_compaction_keeps_what_a_training_noted(learned: Learned, tmp_path: Path) -> None:
    """As `bundles compact` writes it: the card of the training within another."""
    bundles, log, first = learned.bundles, learned.log, learned.found.published
    assert first is not None
    staged = tmp_path / "staged" / "shop" / first.name
    shutil.copytree(first, staged)
    card = open_bundle(first).card
    moved = publish(staged, bundles, {"trained": dict(card), "clicks": {}, "recipe": {}})
    assert trained_card(open_bundle(moved))["clicks"]["until"] == card["clicks"]["until"] > 1.8e9
    again = run(bundles, log)
    assert again.active == moved.name
    assert again.gates[0].reason.startswith("0 people")


def test_judged_queries_whose_clicks_measure_do_not_train(tmp_path: Path) -> None:
    judged, clicks = tmp_path / "judged", tmp_path / "clicks"
    texts = {f"q{i}": f"Red shoes {i}" for i in range(60)}
    for folder in (judged, clicks):
        (folder / "qrels").mkdir(parents=True)
        (folder / "weights").mkdir()
        (folder / "people").mkdir()
        (folder / "corpus.jsonl").write_text('{"_id": "a", "title": "x"}\n')
    lines = [json.dumps({"_id": id, "text": text}) + "\n" for id, text in texts.items()]
    (judged / "queries.jsonl").write_text("".join(lines))
    rows = "".join(f"{id}\ta\t1\n" for id in texts)
    (judged / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    split = {id: split_of(normalised(text)) for id, text in texts.items()}
    assert len(set(split.values())) == 3
    for final, measuring in ((False, {"valid", "test"}), (True, {"valid"})):
        for path in (clicks / "queries.jsonl", clicks / "qrels" / "train.tsv"):
            path.write_text("")
        (clicks / "weights" / "train.tsv").write_text("")
        wanted = [f"judged:train:{id}" for id in texts if split[id] not in measuring]
        collection = read_collection(judged)
        assert add_judgements(clicks, collection, frozenset("a"), final=final) == len(wanted)
        written = (clicks / "qrels" / "train.tsv").read_text().splitlines()
        assert [line.split("\t")[0] for line in written] == wanted


def test_imported_clicks_keep_their_weights_their_people_and_their_split(tmp_path: Path) -> None:
    imported, clicks = tmp_path / "imported", tmp_path / "clicks"
    for folder in (imported, clicks):
        folder.mkdir()
        (folder / "corpus.jsonl").write_text('{"_id": "a"}\n{"_id": "b"}\n')
        (folder / "queries.jsonl").write_text('{"_id": "q", "text": "old"}\n')
        for kind, column, values in (
            ("qrels", "score", (1, 1)),
            ("weights", "weight", (2.5, 7)),
            ("people", "people", (2, 3)),
        ):
            (folder / kind).mkdir()
            for split in ("train", "valid"):
                lines = [f"query-id\tcorpus-id\t{column}"]
                if folder == imported:
                    lines += [f"q\t{id}\t{n}" for id, n in zip("ab", values, strict=True)]
                (folder / kind / f"{split}.tsv").write_text("\n".join([*lines, ""]))
    assert add_judgements(clicks, read_collection(imported), frozenset("ab"), final=True) == 4
    found = read_collection(clicks)
    for split in ("train", "valid"):
        assert dict(found.weights[split]) == {f"judged:{split}:q": {"a": 2.5, "b": 7.0}}
        pairs = found.judgements[split]
        assert pairs.people is not None
        assert pairs.people.tolist() == [2, 3]


def test_two_versions_of_one_second_have_two_names(bundles: Path, tmp_path: Path) -> None:
    first = find_bundle(bundles, "shop")
    staged = tmp_path / "staged" / "shop" / first.name
    shutil.copytree(first, staged)
    again = publish(staged, bundles, {"note": 1})
    assert again != first
    assert find_bundle(bundles, "shop") == again
    assert open_bundle(again).card["note"] == 1
    assert open_bundle(again).bundle_id == open_bundle(first).bundle_id


RECIPE = """
system = "linear"
[model]
latent = "learned"
dimension = 8
match = "bm25"
diagonal = "learned"
bias = true
[train]
loss = "softmax"
epochs = 4
rate = 0.2
init = 0.1
candidates = 40
"""


def test_the_recipe_is_that_of_the_active_version(
    learned: Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings too; of one that learned nothing it is auto. What a search chose is searched again."""
    monkeypatch.setattr("fullrank_trainer.promotion.retrain.passed", lambda _: True)
    (own := tmp_path / "small.toml").write_text(RECIPE)
    active = learned.found.published
    for given, wanted in ((None, "word-translation"), (str(own), own)):
        assert active is not None
        assert recipe_of(open_bundle(active).card) == for_clicks(load_recipe("word-translation"))
        active = run(learned.bundles, learned.log, given).published
        assert active is not None
        assert recipe_of(open_bundle(active).card) == for_clicks(load_recipe(wanted))
    assert recipe_of(open_bundle(learned.before).card) == load_recipe("auto")
    searched = replace(load_recipe("auto"), auto=AutoSettings(trials=("blend.linked_rates=0.1",)))
    assert searched.auto.trials != load_recipe("auto").auto.trials
    assert recipe_of({"recipe": searched.as_dict()}) == load_recipe("auto")


def test_a_days_clicks_go_on_from_the_active_version(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run begins anew, for BM25 learned nothing; so does one whose log grew by more than a quarter."""
    monkeypatch.setattr("fullrank_trainer.promotion.retrain.passed", lambda _: True)
    (recipe := tmp_path / "small.toml").write_text(RECIPE)
    days = [
        clicked(range(40)),
        clicked(range(40), lists=100, since=1.8e9 + 20 * DAY),
        clicked(range(40), lists=400, since=1.8e9 + 30 * DAY),
    ]
    found = [run(bundles, logged(tmp_path / str(n), *days[: n + 1]), str(recipe)) for n in range(3)]
    bundles_of = [open_bundle(one.published) for one in found if one.published is not None]
    cards = [bundle.card for bundle in bundles_of]
    assert ["warm" in card["training"] for card in cards] == [False, True, False]
    assert cards[1]["training"]["warm"]["version"] == bundles_of[0].version
    assert [card["clicks"]["anew_clicks"] for card in cards] == [
        found[0].clicks,
        found[0].clicks,
        found[2].clicks,
    ]
    right = [
        sum(bundle.search(f"alias{i} thing", 1)[0].id == DOCUMENTS[i].id for i in range(40))
        for bundle in bundles_of
    ]
    assert right[1] > right[0] > 5  # by chance, one of 40 would be right

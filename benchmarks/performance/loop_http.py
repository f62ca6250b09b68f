"""The loop through a real service: people search and report clicks over HTTP while workers are killed.

`fullrank loop` does what is due, as cron would call it: it trains between two rounds, and follows the experiment while
people search. Clients repeat what got no answer: a search as a new one, clicks with the same event_id.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.clicks.sessions import Collection, People
from benchmarks.clicks.worlds import PLACES, World
from benchmarks.harness.commands import run_measured
from benchmarks.performance.servers import ROOT, start, stop
from fullrank.bundle import find_bundle
from fullrank.events.log import EventLog
from fullrank.events.places import FOLDER
from fullrank_service.models.state import read_state
from fullrank_service.models.workers import reports
from fullrank_trainer.clicks import join

WORKERS = 2
_NAME = "tldr"
_CLIENTS = 4
# Between two kills. Each takes a worker that answers, so the next one has to start first if there is no other.
_SHORTEST_S, _LONGEST_S = 0.2, 2.0
_TIMEOUT_S, _RETRY_S = 60.0, 0.05
# Calls of `fullrank loop` in a round.
_STEPS = 3
# Lists are written within a second.
_WRITTEN_S = 2.0


@dataclass(frozen=True)
class Plan:
    """How much is done.

    Attributes:
        rounds, sessions: Their number; sessions of a round.
        users: Number of people.
        queries: People search the first so many of the collection, so that several search the same.
        kills: Most of a round.
        time: Limit of each training.
        seed: Of people, clicks and kills.
    """

    rounds: int
    sessions: int
    users: int
    queries: int
    kills: int
    time: str
    seed: int


@dataclass
class Notes:
    """What the clients know, by which the log is judged.

    Attributes:
        lists: Ids of the answers that they got.
        clicks: Of each acknowledged click its event_id, and the id of its list.
        retried: Paths of requests that were sent again.
    """

    lists: list[str] = field(default_factory=list)
    clicks: dict[str, str] = field(default_factory=dict)
    retried: list[str] = field(default_factory=list)


def run_over_http(
    source: Path, collection: Collection, folder: Path, world: World, plan: Plan
) -> dict[str, Any]:
    """Run the loop, then compare the log with what the clients know.

    Args:
        source: Folder of the collection that `fullrank train` reads.
        collection: What people search.
        folder: For the bundles and the log; it must be empty.
        world: How people click.
        plan: How much is done.

    Returns:
        kills, searches, clicks, retries; lost_events and repeated_events of the acknowledged ones; lost_lists;
        unmatched, the clicks without a list as the export counts them, and unmatched_expected, as the clients do; steps
        of `fullrank loop`, with the votes that they saw; bm25, serving and newest, the folders of the first version,
        of the one that serves at the end and of the one that was trained last.
    """
    run_measured(
        ["train", str(source), "--out", str(folder), "--name", _NAME, "--recipe", "bm25", "--json"]
    )
    first = find_bundle(folder, _NAME)
    run_measured(["bundles", "activate", str(first)])
    settings = {
        "FULLRANK_BUNDLES": str(folder),
        "FULLRANK_ANONYMOUS": "search,events",
        "FULLRANK_EXPLORE": "0.05",
        "FULLRANK_LOG_LEVEL": "error",
    }
    notes, steps, kills = Notes(), [], 0
    process, url = start("fullrank_service.process.run", settings, "/readyz", WORKERS)
    try:
        for number in range(plan.rounds):
            people = People.draw(number, plan.sessions, plan.users, plan.queries, plan.seed)
            with _killing(folder, plan.kills, random.Random(f"{plan.seed} {number}")) as killed:
                for part in np.array_split(np.arange(plan.sessions), _STEPS):
                    _search(url, collection, people, part.tolist(), world, plan.seed, notes)
                    # The first training follows the first round.
                    steps += [_step(folder, plan.time)] if number else []
            kills += len(killed)
            if not number:
                time.sleep(_WRITTEN_S)
                steps.append(_step(folder, plan.time))
    finally:
        stop(process)
    state = read_state(folder)
    serving = first if state is None else folder / _NAME / str(state.version)
    return {
        "kills": kills,
        **compare(EventLog(folder / FOLDER), notes),
        "steps": steps,
        "bm25": first,
        "serving": serving,
        "newest": find_bundle(folder, _NAME),
    }


def compare(log: EventLog, notes: Notes) -> dict[str, int]:
    """Compare a log with what the clients know."""
    stored = Counter(event.texts.get("event_id") for event in log.events())
    logged = {served.query_id for served in log.lists()}
    times = [stored[id] for id in notes.clicks]
    return {
        "searches": len(notes.lists),
        "clicks": len(notes.clicks),
        "retries": len(notes.retried),
        "lost_events": times.count(0),
        "repeated_events": sum(count > 1 for count in times),
        "lost_lists": sum(id not in logged for id in notes.lists),
        "unmatched": join(log.lists(), log.events()).counts["unknown_list"],
        "unmatched_expected": sum(id not in logged for id in notes.clicks.values()),
    }


def _step(folder: Path, limit: str) -> dict[str, Any]:
    """Call `fullrank loop` as cron does; return what it did, and the votes if there are any."""
    command = ["loop", _NAME, "--bundles", str(folder), "--every-days", "0.5", "--time", limit]
    done = subprocess.run(
        [sys.executable, "-m", "fullrank", *command, "--json"], stdout=subprocess.PIPE, cwd=ROOT
    )
    # A step that failed is repeated by the next call.
    did = json.loads(done.stdout) if done.returncode == 0 else {"did": "failed"}
    return {name: did[name] for name in ("did", "wins", "losses", "e_value") if name in did}


@contextmanager
def _killing(root: Path, most: int, draw: random.Random) -> Iterator[list[int]]:
    """Kill a random worker that has started, again and again; give the list of those that were killed."""
    killed: list[int] = []
    over = threading.Event()

    def run() -> None:
        while len(killed) < most and not over.wait(draw.uniform(_SHORTEST_S, _LONGEST_S)):
            living = [of.pid for of in reports(root) if of.started and of.pid not in killed]
            if living:
                killed.append(draw.choice(living))
                with suppress(ProcessLookupError):
                    os.kill(killed[-1], signal.SIGKILL)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def _search(
    url: str,
    collection: Collection,
    people: People,
    sessions: Sequence[int],
    world: World,
    seed: int,
    notes: Notes,
) -> None:
    """Let people search and click, several at a time."""
    place = {id: row for row, id in enumerate(collection.documents)}

    def run(part: Sequence[int]) -> None:
        with httpx.Client(base_url=url, timeout=_TIMEOUT_S) as client:
            for session in part:
                query = int(people.query[session])
                who = {"user_id": f"u{people.user[session]}"}
                asked = {"query": collection.queries[query], "limit": PLACES, "fields": [], **who}
                reply = _post(client, "/v1/search", asked, notes)
                id = reply["query_id"]
                notes.lists.append(id)
                ids = [hit["id"] for hit in reply["hits"]]
                answers = np.zeros((1, PLACES), np.bool_)
                answers[0, : len(ids)] = [place[d] in collection.answers[query] for d in ids]
                rng = np.random.default_rng([seed, people.number, session])
                clicked = np.flatnonzero(world.clicks(answers, rng)[0, : len(ids)])
                events = [
                    {
                        "action_name": "click",
                        "timestamp": time.time() * 1000,
                        "query_id": id,
                        "event_id": f"{people.number}-{session}-{at}",
                        "event_attributes": {"object": {"object_id": ids[at]}},
                        **who,
                    }
                    for at in clicked.tolist()
                ]
                if events:
                    kept = _post(client, "/v1/events", {"events": events}, notes)["kept"]
                    if kept != len(events):
                        raise RuntimeError(f"{kept} of {len(events)} clicks were kept")
                    notes.clicks |= {str(event["event_id"]): id for event in events}

    with ThreadPoolExecutor(_CLIENTS) as pool:
        list(pool.map(run, [sessions[i::_CLIENTS] for i in range(_CLIENTS)]))


def _post(client: httpx.Client, path: str, body: Any, notes: Notes) -> dict[str, Any]:
    """Send a request until it is answered; a worker may be killed before it answers."""
    while True:
        try:
            reply = client.post(path, json=body)
        except httpx.TransportError:
            pass
        else:
            if reply.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                found: dict[str, Any] = reply.raise_for_status().json()
                return found
        notes.retried.append(path)
        time.sleep(_RETRY_S)

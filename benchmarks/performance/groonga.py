"""Searches over HTTP in the same run: Fullrank's service, and groonga as Debian packages it.

    apt-get install wrk groonga-bin groonga-httpd groonga-token-filter-stem
    python -m benchmarks.performance.groonga --work DIR [--only tldr/en,debian] [--quick] [--json]

Both hold the same documents and answer with the stored fields of ten hits, one worker each on the first core; wrk runs
on the other cores, over keep-alive connections that each wait for their answer. A round loads all systems in turn, in
an order that rotates between rounds. A ratio is computed within a round. The bundles are those of
benchmarks.performance.frontier: DIR/bundles/tldr-en and DIR/bundles/debian, trained with the default recipe if they
are missing.

groonga's best settings are used: words without accents and endings (TokenBigram, NormalizerAuto, TokenFilterStem), the
query's words without English stop words, any of them; the scorer and the weight of the title are those with the best
MRR on valid, `trials` has all. tldr/en has judged queries; Debian's are whole documents, so its speed is measured with
the short queries of benchmarks.performance.http and groonga keeps the settings that tldr/en chose.

fast, exact              the service in both modes
groonga                  any word
groonga, all words       every word: quicker, and most queries find nothing
groonga, clicked text    any word; each document also has its training queries as a field
mrr                      reciprocal rank of the first ten hits of a sample of the test queries
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness.lab import Lab, basic_parser, collection_folder
from benchmarks.harness.report import Table, machine
from benchmarks.peers.engines import GROONGA_SCORERS, Engine, Groonga, Search, write_groonga
from benchmarks.peers.protocol import Asked, PeerData, read_peer_data
from benchmarks.performance.frontier import TOP, Contender, quality, trained_bundle
from benchmarks.performance.http import Mix, Rounds, Stream, System, over, read_queries
from benchmarks.performance.servers import Server, Wrk, groonga_server, serving
from fullrank.measures import estimate
from fullrank_trainer.evaluation.evaluate import evenly_spread
from fullrank_trainer.features.corpus import text_fields

COLLECTIONS = ("tldr/en", "debian")
CLICKED = "clicked"
BAR = 1.3
"""MRR over that of groonga."""
MODES = ("fast", "exact")
PACKAGES = ("groonga-bin", "groonga-httpd", "groonga-token-filter-stem")


def service_search(url: str, mode: str, rows: Mapping[str, int]) -> Search:
    """Search the service."""
    client = httpx.Client(base_url=url)

    def search(text: str, limit: int) -> list[int]:
        reply = client.post("/v1/search", json={"query": text, "mode": mode, "limit": limit})
        return [rows[hit["id"]] for hit in reply.raise_for_status().json()["hits"]]

    return search


def groonga_search(url: str, groonga: Groonga, rows: Mapping[str, int]) -> Search:
    """Search groonga."""
    client = httpx.Client(base_url=url)

    def search(text: str, limit: int) -> list[int]:
        reply = client.get(groonga.path(text, limit)).raise_for_status().json()
        return [rows[hit[0]] for hit in reply[1][0][2:]]

    return search


def first_hits(search: Search, asked: Asked, queries: int) -> dict[str, float]:
    """Return the MRR of the first ten hits of a sample of queries, and its standard error."""
    places = evenly_spread(len(asked.judgements), queries).tolist()
    contender = Contender(Engine("", search), asked.texts)
    found = estimate(quality(contender, asked, "mrr", places, TOP))
    return {"mrr": round(found.mean, 4), "mrr_error": round(found.standard_error, 4)}


def stored_documents(data: PeerData) -> list[dict[str, str]]:
    """Return the documents for groonga, with the texts of their training queries."""
    documents = data.collection.documents
    names = list(dict.fromkeys(name for document in documents for name in document.fields))
    clicks: list[list[str]] = [[] for _ in documents]
    for query, row in data.train if data.collection.queries is not None else ():
        clicks[row].append(query)
    return [
        {"_key": d.id, **{n: str(d.fields.get(n, "")) for n in names}, CLICKED: "\n".join(queries)}
        for d, queries in zip(documents, clicks, strict=True)
    ]


def loaded(
    servers: Mapping[str, Server], lines: Mapping[str, Sequence[str]], lab: Lab
) -> dict[str, Rounds]:
    """Load all systems in rounds; ``lines`` are the requests of each, of the same queries."""
    cores = sorted(os.sched_getaffinity(0))
    asking = tuple(cores[1:] or cores)
    wrk, given, systems = Wrk(lab.scratch), lab.given, []
    # Systems of one server send different queries, or one would find the other's in its cache.
    mixes = {server.url: Mix(lines[name]) for name, server in servers.items()}
    for name, requests in lines.items():
        path, server = lab.scratch / f"{name}.txt", servers[name]
        path.write_text("\n".join([*requests, ""]), "utf-8")
        stream = Stream(path, mixes[server.url])
        systems.append(System(name, server, stream, given.connections, asking))
    found = {system.name: Rounds(system) for system in systems}
    for system in systems:
        Rounds(system).run(wrk, 1)
    for turn in range(given.rounds):
        first = turn % len(systems)
        for system in (*systems[first:], *systems[:first]):
            found[system.name].run(wrk, given.round_seconds)
    return found


def measure(lab: Lab, name: str, default: Groonga | None) -> tuple[dict[str, Any], Groonga]:
    """Measure a collection; return its figures and groonga's settings, by default those given."""
    data, given = read_peer_data(collection_folder(name)), lab.given
    rows = {document.id: row for row, document in enumerate(data.collection.documents)}
    judged, indexed = data.collection.queries is not None, text_fields(data.collection)
    documents = stored_documents(data)
    stored = [field for field in documents[0] if field not in ("_key", CLICKED)]
    folder = lab.scratch / name.replace("/", "-")
    write_groonga(folder, documents, [*indexed, CLICKED])
    bundle = trained_bundle(name, "auto", data, given.work)
    environment = {
        "FULLRANK_BUNDLES": str(bundle.parent),
        "FULLRANK_DEFAULT_MODEL": bundle.name,
        "FULLRANK_PRELOAD": "false",
        "FULLRANK_DEADLINE_MS": "20000",  # a slow machine refuses nothing
    }
    core = sorted(os.sched_getaffinity(0))[0]
    with (
        groonga_server(folder, core) as peer,
        serving("fullrank_service.process.run", environment, "/readyz", [core]) as service,
    ):
        groonga = replace(default or Groonga((), ()), indexed=indexed, stored=stored)
        trials: dict[str, float] = {}
        if judged:
            options = [
                replace(groonga, scorer=scorer, title=title, all_words=all_words)
                for scorer, title, all_words in product(GROONGA_SCORERS, (1, 3), (False, True))
            ]
            valid = data.asked("valid")
            for option in options:
                search = groonga_search(peer.url, option, rows)
                trials[str(option)] = first_hits(search, valid, given.queries)["mrr"]
            groonga = max(options, key=lambda option: trials[str(option)])
        peers = {"groonga": groonga, "groonga, all words": replace(groonga, all_words=True)}
        if judged:
            peers["groonga, clicked text"] = replace(groonga, indexed=[*indexed, CLICKED])
        asked = data.asked("test")
        searches = {mode: service_search(service.url, mode, rows) for mode in MODES}
        searches |= {n: groonga_search(peer.url, g, rows) for n, g in peers.items()}
        found = {n: first_hits(s, asked, given.queries) for n, s in searches.items() if judged}

        texts = list(dict.fromkeys(asked.texts)) if judged else read_queries(5_000, given.seed)
        lines = {m: [json.dumps({"query": t, "mode": m}) for t in texts] for m in MODES}
        lines |= {n: [g.path(t, TOP) for t in texts] for n, g in peers.items()}
        servers = dict.fromkeys(MODES, service) | dict.fromkeys(peers, peer)
        speed = loaded(servers, lines, lab)
    return {
        "documents": len(documents),
        "systems": {n: rounds.figures() | found.get(n, {}) for n, rounds in speed.items()},
        "ratios": {
            f"{mode} over {n}": over(speed[mode], speed[n]) for n in peers for mode in MODES
        },
        "groonga": str(groonga),
        "trials": trials,
    }, groonga


def tables(name: str, found: Mapping[str, Any]) -> list[Table]:
    """Return the table of systems and the table of ratios of a collection."""
    rows = [
        [
            system,
            f"{f['mrr']:.3f} ± {f['mrr_error']:.3f}" if "mrr" in f else "–",
            f"{f['requests_per_second']:,.0f}",
            f"{f['worker_cpu_us_per_request']:,.0f}",
            f"{f['p50_ms']:.1f}",
            str(f["bytes_per_answer"]),
        ]
        for system, f in found["systems"].items()
    ]
    ratios = [
        [n, f"{r['median']:.2f}", f"{r['q25']:.2f} to {r['q75']:.2f}"]
        for n, r in found["ratios"].items()
    ]
    headings = ["system", "MRR of ten hits", "requests/s", "server µs", "p50 ms", "bytes"]
    title = f"{name}, {found['documents']:,} documents"
    return [
        Table(title, headings, rows, [f"groonga: {found['groonga']}"]),
        Table("Requests per second within rounds", ["ratio", "median", "quartiles"], ratios),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and report; exit 1 if the bar is missed."""
    parser = basic_parser(__doc__, 105)
    parser.add_argument("--work", type=Path, required=True, help="folder of bundles")
    parser.add_argument("--only", default=",".join(COLLECTIONS), help="comma-separated")
    parser.add_argument("--queries", type=int, default=1000, help="judged; default 1000")
    parser.add_argument("--connections", type=int, default=16, help="default 16")
    parser.add_argument("--rounds", type=int, default=10, help="default 10")
    parser.add_argument("--round-seconds", type=float, default=3, help="of a system; default 3")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1 s, 100 queries")
    given = parser.parse_args(arguments)
    # A command that is ended must also end its servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if given.quick:
        given.rounds, given.round_seconds, given.queries = 2, 1, 100
    for program in ("groonga", "groonga-httpd"):
        if shutil.which(program) is None:
            sys.exit("groonga is missing; on Debian: apt-get install " + " ".join(PACKAGES))
    with Lab("groonga", given) as lab:
        lab.machine = machine(("fullrank", "fastapi", "uvicorn", "numpy"))
        collections, groonga = {}, None
        for name in given.only.split(","):
            collections[name], groonga = measure(lab, name, groonga)
        systems = {name: found["systems"] for name, found in collections.items()}
        mrr = {
            name: round(found["fast"]["mrr"] / found["groonga"]["mrr"], 3)
            for name, found in systems.items()
            if "mrr" in found["fast"]
        }
        held = all(ratio >= BAR for ratio in mrr.values())
        version = subprocess.run(["groonga", "--version"], capture_output=True, text=True).stdout
        lab.tell(
            [table for name, found in collections.items() for table in tables(name, found)],
            groonga=version.splitlines()[0],
            collections=collections,
            mrr_over_groonga=mrr,
            held=held,
        )
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()

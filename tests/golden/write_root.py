"""Write what a release leaves on the disk of a machine that serves: run this once per release, with that release.

    python tests/golden/write_root.py OUT "/path/of/that/release/fullrank"

It uses only the command line and the HTTP interface of the release, so it needs nothing of the code of today. OUT gets
the folder of bundles (`root/`) and `written.json`: everything that the release acknowledged.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

WORDS = [
    "river",
    "bridge",
    "cable",
    "pillar",
    "garden",
    "orchard",
    "apple",
    "pear",
    "kettle",
    "copper",
    "lantern",
    "harbour",
]
DOCUMENTS: list[dict[str, Any]] = [
    {
        "_id": f"d{n}",
        "title": f"{a} {b}",
        "text": f"The {a} of the {b} and the {c}.",
        "price": n * 1.5,
    }
    for n, (a, b, c) in enumerate(zip(WORDS, WORDS[1:], WORDS[2:], strict=False))
]
ADDED = {"title": "Glass lantern", "text": "A lantern of blue glass.", "price": 12}
REPLACED = {"title": "Stone bridge", "text": "A bridge of stone over a river.", "tags": ["old"]}
BULK: list[dict[str, Any]] = [
    {"_id": "b1", "title": "Copper wire", "text": "Wire for a cable."},
    {"_id": "b2", "title": "りんご", "text": "赤いりんご。 apple"},
    {"_id": "d2", "_delete": True},
]
RULES = {
    "lamps": {"query": {"contains": "lamp"}, "synonyms": [["lamp", "lantern"]]},
    "first": {"query": {"is": "apple"}, "pin": [{"id": "d4", "position": 1}], "hide": ["d9"]},
}

KEYS = {"all": ("search", "ingest", "events", "admin"), "reader": ("search",), "gone": ("search",)}


def write_collection(folder: Path) -> None:
    """Write a collection in which each document answers its title."""
    (folder / "qrels").mkdir()
    with (folder / "corpus.jsonl").open("w") as file:
        file.writelines(json.dumps(document) + "\n" for document in DOCUMENTS)
    with (folder / "queries.jsonl").open("w") as file:
        file.writelines(
            json.dumps({"_id": f"q-{d['_id']}", "text": d["title"]}) + "\n" for d in DOCUMENTS
        )
    for start, split in enumerate(("train", "valid", "test")):
        lines = "".join(f"q-{d['_id']}\t{d['_id']}\t1\n" for d in DOCUMENTS[start::3])
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + lines)


class Service:
    """A running service of the release."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def __call__(
        self, method: str, path: str, body: Any = None, media: str = "application/json"
    ) -> Any:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": media}
        sent = Request(self.url + path, data if body is not None else None, headers, method=method)
        try:
            with urlopen(sent, timeout=60) as reply:
                return json.loads(reply.read().splitlines()[-1])
        except HTTPError as error:
            sys.exit(f"{method} {path}: {error.code} {error.read().decode()}")


def write_through(service: Service) -> dict[str, Any]:
    """Write documents and, if the release has them, rules and events; return what was acknowledged."""
    paths = service("GET", "/openapi.json")["paths"]
    service("PUT", "/v1/documents/n1", ADDED)
    service("PUT", "/v1/documents/d0", REPLACED)
    lines = "".join(json.dumps(line) + "\n" for line in BULK)
    seq = service("POST", "/v1/documents:bulk", lines, "application/x-ndjson")["seq"]
    documents: dict[str, Any] = {d["_id"]: {**d, "_id": None} for d in DOCUMENTS}
    documents |= {d["_id"]: None if d.get("_delete") else {**d, "_id": None} for d in BULK}
    documents |= {"n1": ADDED, "d0": REPLACED}
    written: dict[str, Any] = {
        "seq": seq,
        "documents": {
            id: fields and {k: v for k, v in fields.items() if k != "_id"}
            for id, fields in documents.items()
        },
    }
    if "/v1/rules/{id}" in paths:
        for id, rule in RULES.items():
            service("PUT", f"/v1/rules/{id}", rule)
        service("PUT", "/v1/rules/gone", RULES["lamps"])
        service("DELETE", "/v1/rules/gone")
        written["rules"] = RULES
    if "/v1/events" in paths:
        written["clicks"] = [click(service, *pair) for pair in (("apple", "d5"), ("bridge", "d0"))]
    return written


def click(service: Service, query: str, id: str) -> dict[str, str]:
    """Search as a person, click on a document of the reply, and return what the log must have of it."""
    person = {"client_id": f"client-{query}", "session_id": "s1", "user_id": f"user-{query}"}
    reply = service("POST", "/v1/search", {"query": query, "min_seq": 5, **person})
    time.sleep(2)  # Lists are logged within a second.
    event = {
        "action_name": "click",
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "query_id": reply["query_id"],
        "client_id": person["client_id"],
        "event_attributes": {"object": {"object_id": id}},
    }
    service("POST", "/v1/events", {"events": [event]})
    return {"query": query, "query_id": reply["query_id"], "id": id}


def write_root(out: Path, command: list[str]) -> None:
    """Train two versions, activate both and roll back, make keys, and write through the service."""
    root = out / "root"

    def run(*arguments: str) -> str:
        return subprocess.run(
            [*command, *arguments], check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    with TemporaryDirectory() as temporary:
        write_collection(Path(temporary))
        for seed in ("1", "2"):
            arguments = ("--name", "shop", "--recipe", "bm25", "--seed", seed)
            run("train", temporary, "--out", str(root), *arguments)
            time.sleep(1.1)  # Versions of one second would differ in their hash alone.
    old, new = sorted(path.name for path in (root / "shop").iterdir() if path.is_dir())
    file = ("--file", str(root / "keys.json"))
    tokens = {}
    for id, scopes in KEYS.items():
        options = [option for scope in scopes for option in ("--scope", scope)]
        tokens[id] = run("keys", "create", *options, "--id", id, *file).split()[-1]
    run("keys", "revoke", "gone", *file)
    run("bundles", "activate", str(root / "shop" / old))
    run("bundles", "activate", str(root / "shop" / new))
    run("bundles", "rollback", str(root))
    patient = {"FULLRANK_PORT": "8417", "FULLRANK_DEADLINE_MS": "60000"}
    environment = {**os.environ, "FULLRANK_LOG_LEVEL": "warning", **patient}
    serving = subprocess.Popen([*command, "serve", "--bundles", str(root)], env=environment)
    url = "http://127.0.0.1:8417"
    try:
        for _ in range(600):
            with suppress(URLError, HTTPError), urlopen(url + "/readyz", timeout=5):
                break
            time.sleep(0.1)
        written = write_through(Service(url, tokens["all"]))
    finally:
        serving.send_signal(signal.SIGTERM)
        serving.wait(60)
    written |= {"active": old, "previous": new, "tokens": tokens}
    (out / "written.json").write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n")
    for leftover in (root / ".workers", root / ".numba"):
        shutil.rmtree(leftover, ignore_errors=True)


if __name__ == "__main__":
    write_root(Path(sys.argv[1]), shlex.split(sys.argv[2]))

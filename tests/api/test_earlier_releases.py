"""What earlier releases left on disk: the service of today opens it, and nothing acknowledged is missing.

`tests/golden/roots` has a folder of bundles for each; its README says how they were written.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fullrank.bundle import list_bundles, open_bundle
from fullrank.events.log import EventLog
from fullrank_service.models.state import read_state
from tests.api.support import Client, ids, ok, rules_applied, running
from tests.unit.cli.running import Run

pytestmark = pytest.mark.anyio
ROOTS = Path(__file__).resolve().parents[1] / "golden" / "roots"


@dataclass(frozen=True)
class Old:
    """A copy of a folder of bundles, and what the release that wrote it had acknowledged."""

    path: Path
    written: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """The keys count, nobody comes without one, and the age of the log removes nothing."""
        return {"keys": self.path / "keys.json", "anonymous": "none", "events_days": 36_500}

    def headers(self, key: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.written['tokens'][key]}"}


@pytest.fixture(params=sorted(path.name for path in ROOTS.iterdir()))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Old:
    folder = ROOTS / request.param
    shutil.copytree(folder / "root", tmp_path / "root")
    return Old(tmp_path / "root", json.loads((folder / "written.json").read_text()))


async def check_documents(client: Client, old: Old) -> None:
    for id, fields in old.written["documents"].items():
        reply = await client.get(f"/v1/documents/{id}")
        if fields is None:
            assert reply.status_code == 404, id
        else:
            assert ok(reply)["fields"] == fields, id


async def check_rules(client: Client, old: Old) -> None:
    rules = old.written.get("rules", {})
    for id, rule in rules.items():
        stored = ok(await client.get(f"/v1/rules/{id}"))
        assert {name: stored[name] for name in rule} == rule
    assert {rule["id"] for rule in ok(await client.get("/v1/rules"))["rules"]} == set(rules)
    await rules_applied(client, "shop", rules)


def check_clicks(old: Old) -> None:
    log = EventLog(old.path / ".events")
    lists = {found.query_id: found for found in log.lists()}
    clicks = [(event.texts["query_id"], event.object_id) for event in log.events()]
    expected = old.written.get("clicks", [])
    assert clicks == [(click["query_id"], click["id"]) for click in expected]
    for click in expected:
        shown = lists[click["query_id"]]
        assert shown.text == click["query"]
        assert click["id"] in shown.ids


async def test_everything_acknowledged_is_there(old: Old) -> None:
    async with running(old.path, **old.settings) as client:
        client.headers.update(old.headers("all"))
        await check_documents(client, old)
        await check_rules(client, old)
        reply = await client.search("glass lamp" if "rules" in old.written else "glass lantern")
        assert ids(reply)[0] == "n1"
        assert reply["model"] == old.written["active"]
        assert await client.write("n2", {"title": "Tin lantern"}) > old.written["seq"]
    check_clicks(old)
    # Started once more, now that rules are in the log of documents.
    async with running(old.path, **old.settings) as client:
        client.headers.update(old.headers("all"))
        await check_documents(client, old)
        await check_rules(client, old)


async def test_keys_open_what_they_opened(old: Old) -> None:
    async with running(old.path, **old.settings) as client:
        for key, status in (("all", 200), ("reader", 200), ("gone", 401)):
            reply = await client.post(
                "/v1/search", json={"query": "apple"}, headers=old.headers(key)
            )
            assert reply.status_code == status
        reply = await client.put("/v1/documents/x", json={}, headers=old.headers("reader"))
        assert reply.status_code == 403


def test_commands_go_on_where_the_release_stopped(old: Old, run: Run) -> None:
    assert run("bundles", "verify", str(old.path)).code == 0
    assert run("bundles", "rollback", str(old.path)).code == 0
    state = read_state(old.path)
    assert state is not None
    assert state.version == old.written["previous"]
    assert run("bundles", "compact", str(old.path / "shop")).code == 0
    newest = open_bundle(list_bundles(old.path)[0].path)
    documents = newest.documents
    stored = {id: documents.document(row).fields for row, id in enumerate(documents.ids)}
    expected = {id: f for id, f in old.written["documents"].items() if f is not None}
    assert stored == expected

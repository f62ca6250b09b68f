"""Hot swap: no failed request, no mixed answer, and after any failure the old version serves."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fullrank.bundle import Bundle, open_bundle
from fullrank.errors import BundleError, BundleNotFound
from fullrank.storage.documents import Document
from fullrank_service.base.errors import BundleRefused
from fullrank_service.base.metrics import Metrics
from fullrank_service.models.registry import Registry
from fullrank_service.models.routes import AliasReply
from fullrank_service.models.state import PROPOSAL, STATE, read_state, write_state
from tests.api.conftest import Root
from tests.api.support import (
    AUTH,
    Client,
    activate,
    at,
    make_bundle,
    models,
    ok,
    running,
    serving,
    until,
)

pytestmark = pytest.mark.anyio


def disjoint(root: Path) -> tuple[str, str]:
    """Two models over the same texts; their ids contain the name of the model."""
    texts = ["copy files", "copy a file to a remote host", "list files", "rename files"]
    versions = [
        make_bundle(
            root,
            name,
            [
                Document(f"{name}-{i}", {"title": name, "text": text})
                for i, text in enumerate(texts)
            ],
            n_dense=4,
            created=at(1),
        )
        for name in ("one", "two")
    ]
    return versions[0], versions[1]


@pytest.mark.sweep
async def test_fifty_swaps_under_load_fail_no_request(tmp_path: Path) -> None:
    one, two = disjoint(tmp_path)
    async with running(tmp_path) as client:
        done = asyncio.Event()
        answers = 0

        async def load() -> None:
            nonlocal answers
            highest = 0
            while not done.is_set():
                response = await client.post("/v1/search", json={"query": "copy files"})
                assert response.status_code == 200, response.text
                reply = response.json()
                name = reply["model"].split("-")[0]
                assert response.headers["X-Model-Version"] == reply["model"]
                assert len(reply["hits"]) == 4
                assert {hit["id"].split("-")[0] for hit in reply["hits"]} == {name}
                # A generation has one model, and one client never sees it go back.
                assert reply["generation"] >= highest
                highest = reply["generation"]
                assert highest == 1 or name == ("one" if highest % 2 == 0 else "two")
                answers += 1
                # Without a socket between them nothing here waits: a short search is answered where it arrives.
                await asyncio.sleep(0)

        clients = [asyncio.create_task(load()) for _ in range(8)]
        assert await serving(client) == two  # equal times: by version
        for i in range(50):
            swapped = ok(await activate(client, one if i % 2 == 0 else two))
            assert swapped["generation"] == i + 2
            await asyncio.sleep(0.005)
        done.set()
        await asyncio.gather(*clients)
        assert answers > 50
        assert 'fullrank_generation{worker="0"} 51.0' in (await client.get("/metrics")).text


async def test_the_activated_version_serves_after_a_restart(root: Root) -> None:
    async with running(root.path) as client:
        assert await serving(client) == root.learned
        reply = (await activate(client, root.bm25)).json()
        AliasReply.model_validate(reply)
        assert (reply["version"], reply["generation"]) == (root.bm25, 2)
        assert reply["previous"] == root.learned
        # Activating the active version changes nothing.
        assert (await activate(client, root.bm25)).json()["generation"] == 2
    async with running(root.path) as client:
        assert await serving(client) == root.bm25
        listed = await models(client)
        assert (listed["generation"], listed["aliases"]) == (2, {"default": root.bm25})


async def test_the_first_bundle_serves_as_soon_as_it_appears(tmp_path: Path) -> None:
    async with running(tmp_path / "later", poll_ms=20) as client:
        assert (await client.get("/readyz")).status_code == 503
        version = make_bundle(tmp_path / "later", "first")
        await until(lambda: status(client, "/readyz"), 200)
        assert await serving(client) == version


async def status(client: Client, path: str) -> int:
    return (await client.get(path)).status_code


async def test_a_new_bundle_does_not_serve_before_it_is_activated(root: Root) -> None:
    async with running(root.path, poll_ms=20) as client:
        late = make_bundle(root.path, "late", created=at(3))
        await asyncio.sleep(0.1)
        assert await serving(client) == root.learned
        entries = {entry["version"]: entry for entry in (await models(client))["models"]}
        assert not entries[late]["loaded"]
        response = await client.post("/v1/search", json={"query": "x", "model": late})
        assert response.status_code == 404
        assert (await client.post(f"/v1/models/{late}:load", headers=AUTH)).status_code == 200
        response = await client.post("/v1/search", json={"query": "x", "model": late})
        assert response.json()["model"] == late
        assert await serving(client) == root.learned


async def test_the_default_model_is_the_newest_of_its_name(root: Root) -> None:
    newer = make_bundle(root.path, "bm25", created=at(4), n_dense=2)
    make_bundle(root.path, "other", created=at(5))
    async with running(root.path, default_model="bm25") as client:
        assert await serving(client) == newer
    async with running(root.path, default_model="absent") as client:
        assert (await client.get("/readyz")).status_code == 503


@pytest.mark.parametrize("version", ["absent-1", "bm25"])
async def test_an_unknown_version_is_not_found(root: Root, version: str) -> None:
    async with running(root.path) as client:
        assert (await activate(client, version)).status_code == 404
        response = await client.post(f"/v1/models/{version}:load", headers=AUTH)
        assert response.status_code == 404
        assert await serving(client) == root.learned


async def test_a_version_cannot_be_a_path(root: Root) -> None:
    async with running(root.path) as client:
        for version in ("../x", "/etc", "a/b", "", "A", ".hidden", "x" * 101, "a\n"):
            assert (await activate(client, version)).status_code == 422
        for version in ("..", "%2e%2e", "a%2Fb", "a%00b", "é"):
            response = await client.post(f"/v1/models/{version}:load", headers=AUTH)
            assert response.status_code in (404, 405), version


async def test_a_damaged_bundle_is_refused_and_the_old_one_serves(root: Root) -> None:
    late = make_bundle(root.path, "late", created=at(3))
    victim = root.path / "late" / late / "documents" / "weights.npy"
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.chmod(0o644)
    victim.write_bytes(content)
    async with running(root.path, default_model="learned") as client:
        for response in (
            await activate(client, late),
            await client.post(f"/v1/models/{late}:load", headers=AUTH),
        ):
            assert response.status_code == 409
            assert response.json()["type"].endswith("bundle-refused")
            assert "weights.npy" in response.json()["detail"]
        assert await serving(client) == root.learned
        assert read_state(root.path) is None
        entries = {entry["version"]: entry for entry in (await models(client))["models"]}
        assert "weights.npy" in entries[late]["failure"]


async def test_a_worker_is_not_ready_if_the_activated_bundle_cannot_serve(root: Root) -> None:
    async with running(root.path) as client:
        await activate(client, root.bm25)
    manifest = root.path / "bm25" / root.bm25 / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text(manifest.read_text() + "\n")
    async with running(root.path) as client:
        assert (await client.get("/readyz")).status_code == 503
        assert "not the manifest that was activated" in (await models(client))["failure"]
        assert (await activate(client, root.learned)).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        assert (await models(client))["failure"] is None


async def test_a_damaged_state_file_does_not_change_what_serves(root: Root) -> None:
    async with running(root.path, poll_ms=20) as client:
        (root.path / STATE).write_text("{")
        await asyncio.sleep(0.1)
        assert await serving(client) == root.learned
        response = await activate(client, root.bm25)
        assert response.status_code == 409
        assert STATE in response.json()["detail"]
    async with running(root.path) as client:
        assert (await client.get("/readyz")).status_code == 503


async def test_a_swap_on_a_full_disk_fails_and_the_old_version_serves(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Mock(side_effect=OSError(28, "No space left on device"))
    async with running(root.path) as client:
        monkeypatch.setattr("fullrank_service.models.swap.write_state", full)
        response = await activate(client, root.bm25)
        assert response.status_code == 500
        assert "No space left" in response.json()["detail"]
        assert await serving(client) == root.learned
        assert not (root.path / PROPOSAL).exists()
        monkeypatch.setattr("fullrank_service.models.swap.write_state", write_state)
        assert (await activate(client, root.bm25)).status_code == 200


async def test_requests_are_answered_while_a_model_loads(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def slow(path: Path) -> Bundle:
        gate.wait(10)
        return open_bundle(path)

    async with running(root.path, preload=False) as client:
        app = client.app
        monkeypatch.setattr(app.state.models._loader, "opener", slow)
        swap = asyncio.create_task(activate(client, root.bm25))
        await asyncio.sleep(0.05)
        assert await serving(client) == root.learned
        assert (await activate(client, root.bm25)).status_code == 409
        gate.set()
        assert (await swap).status_code == 200
        assert await serving(client) == root.bm25


async def test_long_jobs_leave_threads_to_writes_and_reads(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A swap, ten requests for analytics and ten for the votes of an experiment, all held up, and no other request."""
    gate = threading.Event()

    def held(*_: Any) -> Any:
        gate.wait(30)
        raise BundleNotFound("held up")

    async with running(root.path) as client:
        experiment = {"candidate": root.bm25, "share": 0.5}
        started = await client.put("/v1/experiments/default", json=experiment, headers=AUTH)
        assert started.status_code == 200, started.text
        for place in ("events.recorder.Analytics.report", "experiments.status.status_of"):
            monkeypatch.setattr(f"fullrank_service.{place}", held)
        monkeypatch.setattr("fullrank_service.models.swap.find", held)
        jobs = [asyncio.create_task(activate(client, root.bm25))]
        for path in ("/v1/analytics", "/v1/experiments/default"):
            jobs += [asyncio.create_task(client.get(path, headers=AUTH)) for _ in range(10)]
        await asyncio.sleep(0.2)
        try:
            async with asyncio.timeout(10):
                rule = {"query": {"is": "copy"}, "filter": {"section": 1}}
                stored = await client.put("/v1/rules/r1", json=rule, headers=AUTH)
                assert stored.status_code == 200, stored.text
                assert (await client.get("/v1/models")).status_code == 200
                assert (await activate(client, root.bm25)).status_code == 409
            assert not any(job.done() for job in jobs)
        finally:
            gate.set()
            await asyncio.gather(*jobs)


async def test_old_models_are_dropped_but_never_the_active_or_the_previous(tmp_path: Path) -> None:
    versions = [make_bundle(tmp_path, "m", created=at(i)) for i in range(6)]
    async with running(tmp_path, preload=False, max_loaded=3) as client:
        for version in versions:
            assert (await activate(client, version)).status_code == 200
        listed = await models(client)
        loaded = [entry["version"] for entry in listed["models"] if entry["loaded"]]
        assert loaded == versions[:-4:-1]
        assert (listed["aliases"]["default"], listed["previous"]) == (versions[5], versions[4])


async def test_a_rollback_to_a_damaged_bundle_is_refused_even_if_it_is_loaded(root: Root) -> None:
    async with running(root.path, poll_ms=10) as client:
        victim = root.path / "bm25" / root.bm25 / "documents" / "weights.npy"
        content = victim.read_bytes()
        victim.unlink()
        victim.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        response = await activate(client, root.bm25)
        assert response.status_code == 409
        assert "weights.npy" in response.json()["detail"]
        assert await serving(client) == root.learned
        victim.write_bytes(content)
        assert (await activate(client, root.bm25)).status_code == 200


async def test_the_generation_is_in_the_header_of_every_answer(root: Root) -> None:
    async with running(root.path) as client:
        await activate(client, root.bm25)
        for method, path, body, version in (
            ("POST", "/v1/search", {"query": "copy"}, root.bm25),
            ("POST", "/v1/search", {"query": "copy", "model": "learned"}, root.learned),
            ("POST", "/v1/search", {"query": "copy", "model": "nobody"}, None),
            ("POST", "/v1/search", {"query": "copy", "filter": {"text": 5}}, root.bm25),
            ("POST", "/v1/search", {"query": 5}, None),
            ("GET", "/v1/documents/nothing/similar", None, root.bm25),
            ("GET", "/v1/models", None, None),
            ("GET", "/readyz", None, None),
            ("GET", "/nowhere", None, None),
        ):
            response = await client.request(method, path, json=body)
            assert response.headers["X-Model-Generation"] == "2", path
            assert response.headers.get("X-Model-Version") == version, (path, response.text)


async def test_a_bundle_is_prepared_before_it_serves(root: Root) -> None:
    """The hook prepares further parts, such as documents added since the bundle was made."""
    seen: list[str] = []
    gone: list[str] = []
    versions = [make_bundle(root.path, "m", created=at(i)) for i in range(3, 6)]

    def refuse(bundle: Bundle) -> None:
        seen.append(bundle.version)
        if len(seen) == 2:
            raise BundleError("cannot be prepared")

    registry = Registry(
        root.path,
        Metrics(),
        preload=False,
        prepare=refuse,
        release=lambda bundle: gone.append(bundle.version),
        max_loaded=1,
    )
    await registry.start()
    assert seen == [versions[2]]
    with pytest.raises(BundleRefused, match="cannot be prepared"):
        await registry.activate(versions[0])
    await registry.activate(versions[0])
    await registry.activate(versions[1])
    assert seen == [versions[2], versions[0], versions[0], versions[1]]
    assert registry.serving.active == versions[1]
    # The one before stays: going back to it is a matter of milliseconds.
    assert list(registry.serving.models) == versions[:2]
    assert gone == [versions[2]]
    await registry.close()

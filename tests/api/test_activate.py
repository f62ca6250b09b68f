"""``fullrank bundles activate`` and ``rollback``, without a running service and with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fullrank.cli import build_app
from fullrank.errors import BundleError, BundleNotFound, FullrankError
from fullrank_service.models.state import ActiveState, dump_state, lock, read_state
from tests.api.support import running
from tests.bundles import at, make_bundle

RUN = CliRunner()


def ask(*arguments: str | Path) -> dict[str, object]:
    done = RUN.invoke(build_app(), ["bundles", *map(str, arguments), "--json"])
    if done.exception is not None:
        raise done.exception
    reply: dict[str, object] = json.loads(done.stdout)
    return reply


def test_activate_without_a_service_verifies_and_records_the_bundle(tmp_path: Path) -> None:
    old = make_bundle(tmp_path, "mine", created=at(1))
    new = make_bundle(tmp_path, "mine", created=at(2))
    reply = ask("activate", tmp_path / "mine" / old)
    assert reply == {
        "version": old,
        "generation": 1,
        "previous": None,
        "workers": 0,
        "converged": True,
    }
    # A name means its newest version.
    assert ask("activate", tmp_path / "mine")["version"] == new
    assert ask("rollback", tmp_path) == {**reply, "generation": 3, "previous": new}
    state = read_state(tmp_path)
    assert state is not None
    assert (state.generation, state.version) == (3, old)
    plain = RUN.invoke(build_app(), ["bundles", "activate", str(tmp_path / "mine")])
    assert plain.stdout == f"generation 4 serves {new} in 0 workers\n"


@pytest.mark.parametrize("linked", ["name", "version"])
def test_a_linked_bundle_is_activated_in_the_folder_of_the_link(
    tmp_path: Path, linked: str
) -> None:
    """Its files may lie anywhere; the note belongs into the folder that is served."""
    version = make_bundle(tmp_path / "disk", "mine")
    name = tmp_path / "bundles" / "mine"
    (name if linked == "version" else name.parent).mkdir(parents=True)
    link, target = (name / version, f"mine/{version}") if linked == "version" else (name, "mine")
    (tmp_path / "disk" / target).rename(tmp_path / "disk" / "elsewhere")
    link.symlink_to(tmp_path / "disk" / "elsewhere")
    for path in (name / version, name):
        assert ask("activate", path)["version"] == version
        state = read_state(tmp_path / "bundles")
        assert state is not None
        assert (state.generation, state.version) == (1, version)


def test_a_sharded_bundle_is_refused_without_the_cluster_that_serves_it(tmp_path: Path) -> None:
    for version in ("shop-1", "shop-2"):
        (tmp_path / "shop" / version).mkdir(parents=True)
        (tmp_path / "shop" / version / "set.json").write_text("{}")
    for address in (tmp_path / "shop" / "shop-2", tmp_path / "shop"):
        with pytest.raises(FullrankError, match=f"^{address}: a sharded bundle; --ray ADDRESS"):
            ask("activate", address)
    state = ActiveState(2, "shop-2", previous="shop-1")
    (tmp_path / "active.json").write_text(dump_state(state))
    with pytest.raises(FullrankError, match="shop-1: a sharded bundle; --ray ADDRESS"):
        ask("rollback", tmp_path)
    assert read_state(tmp_path) == state


def test_activate_refuses_bundles_that_cannot_serve(tmp_path: Path) -> None:
    version = make_bundle(tmp_path, "mine")
    with pytest.raises(BundleNotFound, match="before"):
        ask("rollback", tmp_path)
    with pytest.raises(BundleError, match="another"):
        ask("activate", tmp_path / "another")
    golden = tmp_path / "mine" / version / "golden.jsonl"
    golden.chmod(0o644)
    golden.write_text(golden.read_text().replace("copy", "cops"))
    with pytest.raises(BundleError, match=r"golden\.jsonl"):
        ask("activate", tmp_path / "mine")
    with lock(tmp_path), pytest.raises(Exception, match="in progress"):
        ask("activate", tmp_path / "mine")
    assert read_state(tmp_path) is None


@pytest.mark.anyio
async def test_a_running_service_switches_to_the_activated_bundle(tmp_path: Path) -> None:
    import anyio.to_thread

    old = make_bundle(tmp_path, "mine", created=at(1))
    new = make_bundle(tmp_path, "mine", created=at(2))
    async with running(tmp_path, poll_ms=10) as one, running(tmp_path, poll_ms=10) as two:
        reply = await anyio.to_thread.run_sync(ask, "activate", tmp_path / "mine" / old)
        assert (reply["generation"], reply["previous"], reply["workers"]) == (2, new, 2)
        for client in (one, two):
            answer = (await client.post("/v1/search", json={"query": "copy"})).json()
            assert (answer["model"], answer["generation"]) == (old, 2)

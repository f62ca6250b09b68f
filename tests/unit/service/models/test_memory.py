"""The memory that a bundle takes in a worker, and that is left for it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fullrank.bundle import read_manifest
from fullrank.errors import BundleError
from fullrank.storage.documents import Document
from fullrank_service.models import loader as memory
from tests.bundles import make_bundle


def words(number: int) -> list[Document]:
    """Documents of so many different words."""
    return [
        Document(f"d{i:06}", {"title": f"title{i}", "text": f"word{2 * i} word{2 * i + 1}"})
        for i in range(number // 3)
    ]


@pytest.mark.sweep
def test_the_estimate_is_not_below_what_a_worker_allocates(tmp_path: Path) -> None:
    version = make_bundle(tmp_path, "many", words(48_000), n_dense=16)
    path = tmp_path / "many" / version
    code = f"""
import ctypes, gc, re
from pathlib import Path
import faiss, numpy, scipy.sparse, numba
from fullrank.bundle import open_bundle
def taken():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10
# What imports freed would be used again and not counted.
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
before = taken()
bundle = open_bundle(Path({str(path)!r}))
bundle.retriever.warm()
bundle.retriever.search(bundle.model.encode_queries(["word1 word7"]), 10)
print(taken() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took, estimate = int(done.stdout), memory.private_bytes(read_manifest(path))
    assert took > 2_000_000
    assert took <= estimate <= 16_800_000 + 4 * took


def test_words_count_where_the_bundle_has_no_hash_table_of_them(tmp_path: Path) -> None:
    manifest = read_manifest(tmp_path / "one" / make_bundle(tmp_path, "one", words(3_000)))
    files = {name: entry for name, entry in manifest.files.items() if "slots" not in name}
    assert len(files) < len(manifest.files)
    more = memory.private_bytes(replace(manifest, files=files)) - memory.private_bytes(manifest)
    assert more >= 100 * 2_000  # the words of the texts


def test_the_tightest_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo, own, groups = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "fs"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    own.write_text("0::/a/b\n")
    (groups / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    monkeypatch.setattr(memory, "OWN_GROUP", own)
    monkeypatch.setattr(memory, "GROUPS", groups)

    def limit(folder: str, most: str, used: int, pages: int) -> None:
        (groups / folder / "memory.max").write_text(most)
        (groups / folder / "memory.current").write_text(str(used))
        (groups / folder / "memory.stat").write_text(f"anon 1\ninactive_file {pages}\n")

    assert memory.available_bytes() == 5_120_000
    limit("a/b", "max", 10, 0)
    assert memory.available_bytes() == 5_120_000
    # The limit of a parent group counts too; pages of files can be taken back.
    limit("a", "4000000", 3_000_000, 500_000)
    assert memory.available_bytes() == 1_500_000
    limit("a", "700", 900, 50)
    assert memory.available_bytes() == 0
    # In a container the path may be that of the host; then the limit is at the root.
    own.write_text("0::/elsewhere\n")
    assert memory.available_bytes() == 5_120_000
    limit(".", "3000000", 1_000_000, 0)
    assert memory.available_bytes() == 2_000_000
    meminfo.unlink()
    own.unlink()
    assert memory.available_bytes() is None


def test_this_machine_reports_its_memory() -> None:
    found = memory.available_bytes()
    assert found is not None
    total = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    assert total is not None
    assert 0 < found <= int(total[1]) << 10


def test_the_refusal_contains_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = read_manifest(tmp_path / "one" / make_bundle(tmp_path, "one"))
    each = memory.private_bytes(manifest)
    monkeypatch.setattr(memory, "available_bytes", lambda: 3 * each + (64 << 20))
    memory.check_memory(manifest, 3)
    with pytest.raises(
        BundleError, match=r"about 16\.\d MB in each of 4 workers and 67\.1 MB in reserve"
    ):
        memory.check_memory(manifest, 4)
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    memory.check_memory(manifest, 10**6)

"""Run every block of every page, in order, and compare what it prints with what the page shows."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.api.support import KEY
from tests.docs.comparing import REST, json_differences, text_differences
from tests.docs.given import GIVEN
from tests.docs.pages import LOG, ROOT, Block, Page, pages, read_page
from tests.docs.shell import Failed, Shell

PAGES = pages()
# Pages that train several times.
LONG = {
    "tutorials/shop-with-clicks.md",
    "guides/clicks/retrain.md",
    "guides/clicks/import.md",
    "guides/search/languages.md",
}
RUN = [
    pytest.param(page, id=str(page), marks=[pytest.mark.sweep] if str(page) in LONG else [])
    for page in PAGES
    if page.blocks
]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_block_of_a_page_can_be_tested(page: Page) -> None:
    assert page.faults == ()
    assert {*page.given} <= GIVEN.keys()


@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run(
    page: Page,
    fork_socket: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    for module in page.needs:
        if importlib.util.find_spec(module) is None:
            for block in page.blocks:
                if block.language == "python":
                    compile("\n" * block.line + block.text, str(page.path), "exec")
            pytest.skip(f"{page} needs {module}; its Python was compiled, and nothing was run")
    run_page(page, fork_socket, tmp_path, monkeypatch, request)


def run_page(
    page: Page,
    fork_socket: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with Shell(folder, fork_socket, {}) as shell:
        for name in page.given:
            made = request.getfixturevalue("made_shop") if name != "repository" else Path()
            if name == "shop":
                shell.environment["SHOP_KEY"] = KEY
                monkeypatch.setenv("KEY", KEY)
            GIVEN[name](shell, made)
        found = list[str]()
        for block in page.blocks:
            place = f"{page.path}:{block.line}"
            try:
                found += [f"{place}: {text}" for text in run_block(shell, block, page)]
            except Exception as error:
                error.add_note("\n".join([place, *found]))
                raise
        if found:
            raise Failed("\n".join(found))


def run_block(shell: Shell, block: Block, page: Page) -> Iterator[str]:
    """Run a block, or write its file, or yield how what it shows differs from what was printed."""
    if block.request is not None:
        response = shell.request(*block.request, block.text)
        if response.status_code >= 400 and not answers(block, page):
            raise Failed(response.text)
    elif block.language == "text" and block.title == LOG:
        yield from text_differences(f"{REST}\n{block.text}\n{REST}", shell.logged())
    elif block.is_file:
        shell.write(block)
    elif block.language == "bash":
        shell.run(block.text)
    elif block.language == "python":
        # Errors then name the line of the page.
        shell.python("\n" * block.line + block.text, str(page.path))
    elif block.language == "json":
        yield from json_differences(block.text, shell.out)
    elif block.language == "text":
        printed = [shell.out, shell.err, shell.out + shell.err, shell.err + shell.out]
        found = [list(text_differences(block.text, text)) for text in printed]
        if all(found):
            yield from found[2]


def test_the_first_steps_of_the_readme_run(
    fork_socket: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """The steps with the reader's own files; `make test-wheel` and the tests of images cover the installation."""
    readme = read_page(ROOT / "README.md")
    first = next(n for n, block in enumerate(readme.blocks) if "fullrank import" in block.text)
    hits = "… rain boots\n" * 3 + "proven: no other document ranks higher\n"
    steps = [block for block in readme.blocks[first:] if block.is_run]
    page = replace(readme, blocks=(*steps, Block("text", "", hits, 0)), given=("tables",))
    run_page(page, fork_socket, tmp_path, monkeypatch, request)


def answers(block: Block, page: Page) -> bool:
    """Whether the page shows what is answered to a request."""
    follows = page.blocks[page.blocks.index(block) + 1 :][:1]
    return any(not other.is_run and not other.is_file for other in follows)


def page_of(path: Path, text: str) -> Page:
    path.write_text(text, "utf-8")
    return read_page(path)


GOOD = """# A page
<!-- given: shop -->

```python
from fullrank import open_bundle

bundle = open_bundle("bundles/shop")
```

```csv title="more.csv"
query,sku
mac,rain-jacket-1
```

```bash
wc -l more.csv
fullrank search bundles/shop wellies --limit 1
```

```text
99 more.csv
…
1.5 rain-boots-1 …
```

```python
print(len(bundle.search("wellies", limit=3)))
```

```text
7
```

```bash
fullrank serve --bundles bundles --port 8001
curl -s localhost:8001/v1/search -H 'Content-Type: application/json' -d '{"query": "gumboots", "limit": 1}'
```

```json
{"hits": [{"id": "…", …}], …}
```

```json title="POST /v1/search"
{"query": "wellies", "limit": 1000}
```

```json
{"status": 422, …}
```
"""


def test_a_page_runs(
    fork_socket: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    page = page_of(tmp_path / "page.md", GOOD)
    assert page.faults == ()
    run_page(page, fork_socket, tmp_path, monkeypatch, request)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```bash\nfalse\n```", "ended the shell with code 1"),
        ("```bash\necho a\n```\n```text\nb\n```", "shown (-), printed (+)"),
        ("```bash\necho '{}'\n```\n```json\n{\"a\": 1}\n```", "reply.a is not in the reply"),
        ("```bash\ndocker compose -f missing.yaml up\n```", "missing.yaml"),
        ("```python\n1 / 0\n```", "division by zero"),
    ],
)
def test_a_wrong_block_is_found(
    text: str,
    reason: str,
    fork_socket: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    page = page_of(tmp_path / "page.md", text)
    assert page.faults == ()
    with pytest.raises((Failed, AssertionError, ZeroDivisionError), match=re.escape(reason)):
        run_page(page, fork_socket, tmp_path, monkeypatch, request)


@pytest.mark.parametrize(
    "text",
    [
        "```\nx\n```",
        "```ruby\nx\n```",
        "```csv\na,b\n```",
        "```json\n{}\n```",
        "    indented",
        "```bash x=1\n```",
    ],
)
def test_an_untestable_block_is_found(text: str, tmp_path: Path) -> None:
    assert len(page_of(tmp_path / "page.md", text).faults) == 1

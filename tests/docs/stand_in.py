#!/usr/bin/env python3
"""Stand in for commands that a machine for tests lacks, or that would change it; the name of the link says which.

It does nothing but check what it is given: files, services, resources, targets, extras and options. `git clone` copies
what a page may use of the repository.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import yaml

REPOSITORY = Path(os.environ["REPOSITORY"])
COPIED = (
    "deploy",
    "docker",
    "examples",
    "requirements",
    "Makefile",
    "pyproject.toml",
    "docs/openapi.json",
)


SYSTEMD = {
    *("cat", "daemon-reload", "disable", "edit", "enable", "is-active", "list-timers", "reload"),
    *("restart", "show", "start", "status", "stop"),
}


def fail(message: str) -> NoReturn:
    sys.exit(f"{Path(sys.argv[0]).name} (stand-in of tests/docs/bin): {message}")


def options(words: list[str], flags: str, valued: str) -> tuple[dict[str, list[str]], list[str]]:
    """Split off the options before the first other word. Fails for an unknown one."""
    found: dict[str, list[str]] = {}
    words = list(words)
    while words and words[0].startswith("-") and words[0] != "-":
        name, _, value = words.pop(0).partition("=")
        if name == "--":
            break
        if name in valued.split():
            if not value and not words:
                fail(f"{name} lacks its value")
            found.setdefault(name, []).append(value or words.pop(0))
        elif name in flags.split():
            found.setdefault(name, [])
        else:
            fail(f"unknown option {name}; if there is one, add it to tests/docs/stand_in.py")
    return found, words


def spread(words: list[str], flags: str, valued: str) -> tuple[dict[str, list[str]], list[str]]:
    """Split off options that may stand between other words."""
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    while words:
        some, words = options(words, flags, valued)
        for name, values in some.items():
            found.setdefault(name, []).extend(values)
        rest, words = rest + words[:1], words[1:]
    return found, rest


def existing(path: str) -> Path:
    if not Path(path).exists():
        fail(f"{path}: no such file")
    return Path(path)


def among(names: Iterable[str], known: Iterable[str], what: str) -> None:
    known = sorted(known)
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 5, 0) if len(known) > 30 else known
            fail(f"no {what} {name}; there are {', '.join(near)}")


def docker(words: list[str]) -> None:
    verb, words = words[0], words[1:]
    if verb == "compose":
        compose(words)
    elif verb == "build":
        given, rest = spread(words, "--pull", "-t --tag -f --file --build-arg --target")
        for path in [*given.get("-f", []), *given.get("--file", []), *rest]:
            existing(path)
    elif verb == "run":
        given, rest = options(
            words, "--rm -d --detach -i -t -it --read-only --init",
            "-p --publish -v --volume -e --env --env-file --name --network --user -u -w --tmpfs --restart --mount "
            "--memory --cpus",
        )  # fmt: skip
        for path in given.get("--env-file", []):
            existing(path)
        if not rest:
            fail("run needs an image")
    else:
        among(
            [verb],
            {
                "exec",
                "images",
                "logs",
                "ps",
                "pull",
                "stop",
                "cp",
                "login",
                "push",
                "tag",
                "restart",
            },
            "verb",
        )


def compose(words: list[str]) -> None:
    given, rest = options(words, "", "-f --file --profile --env-file --project-name -p")
    files = [*given.get("-f", []), *given.get("--file", [])] or ["compose.yaml"]
    parts = [yaml.safe_load(existing(path).read_text("utf-8")) for path in files]
    services = {name: entry for part in parts for name, entry in part["services"].items()}
    among(
        given.get("--profile", []),
        {p for s in services.values() for p in (s or {}).get("profiles", [])},
        "profile",
    )
    verb, rest = rest[0], rest[1:]
    valued = {
        "up": "--scale --wait-timeout",
        "logs": "--tail --since",
        "run": "-e -v --entrypoint --user",
        "exec": "-e --user",
        "down": "-t",
    }
    flags = "-d --detach --build --wait --rm -T -f --follow --no-deps --volumes -v --pull --force-recreate --services"
    among(
        [verb],
        {*valued, "build", "config", "ps", "pull", "restart", "start", "stop", "kill", "cp"},
        "verb of compose",
    )
    _, rest = (
        options(rest, flags, valued.get(verb, ""))
        if verb in ("run", "exec")
        else spread(rest, flags, valued.get(verb, ""))
    )
    among(
        rest[:1] if verb in ("run", "exec") else rest if verb != "cp" else [], services, "service"
    )


def kubectl(words: list[str]) -> None:
    if words[:1] == ["logs"]:  # where -f follows
        words = [word for word in words if word != "-f"]
    given, rest = spread(
        words, "--all-namespaces -A -w --watch --server-side --all -it -i -t --previous",
        "-f --filename -n --namespace -l --selector -o --output --timeout --replicas --from-literal --from-file "
        "--tail --context -k --for -c --type -p",
    )  # fmt: skip
    verbs = (
        "apply cp create delete describe exec get logs patch port-forward rollout scale top wait"
    )
    among(rest[:1], verbs.split(), "verb")
    for name in [*given.get("-f", []), *given.get("--filename", [])]:
        if "://" not in name and not all("kind" in one for one in documents_of(existing(name))):
            fail(f"{name}: not resources of Kubernetes")
    files = [*REPOSITORY.glob("deploy/kubernetes/*.yaml"), *Path().glob("**/*.yaml")]
    documents = [one for path in files for one in documents_of(path)]
    named = {one["metadata"]["name"] for one in documents if "metadata" in one}
    for folder in given.get("-k", []):
        existing(f"{folder}/kustomization.yaml")
    for word in rest[1:]:
        match = re.fullmatch(r"[a-z]+/([\w.-]+)", word)
        if match and not any(match[1].startswith(name) for name in named):
            fail(f"no resource {word}; there are {', '.join(sorted(named))}")


def documents_of(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text("utf-8")) if isinstance(one, dict)]


def systemctl(words: list[str]) -> None:
    _, rest = spread(words, "--user --now --no-pager -q --quiet --failed", "")
    among(
        rest[:1],
        SYSTEMD,
        "verb",
    )
    units(rest[1:])


def journalctl(words: list[str]) -> None:
    given, _ = spread(
        words, "-f --no-pager -e -r -x -xe --user", "-u --unit -n --since --until -o -p -g"
    )
    units([*given.get("-u", []), *given.get("--unit", [])])


def units(names: list[str]) -> None:
    found = [
        path.name
        for folder in (REPOSITORY / "deploy", Path())
        for kind in ("service", "timer", "socket")
        for path in folder.glob(f"**/*.{kind}")
    ]
    found += [
        f"{name}.service"
        for name in ("nginx", "caddy", "redis-server", "postgresql", "cron", "docker")
    ]
    among([name if "." in name else f"{name}.service" for name in names], found, "unit")


def pip(words: list[str]) -> None:
    among(words[:1], {"install", "uninstall", "show", "list", "download", "--version"}, "verb")
    given, rest = spread(
        words[1:], "--quiet -q --upgrade -U --require-hashes --no-deps --no-build-isolation --no-index --user",
        "-r --requirement -c -e --editable --find-links",
    )  # fmt: skip
    for path in [*given.get("-r", []), *given.get("--requirement", []), *given.get("-c", [])]:
        existing(path)
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    for word in rest:
        if match := re.fullmatch(r"fullrank\[([\w,]+)\](?:[=<>~].*)?", word):
            among(match[1].split(","), extras, "extra")
        elif word.endswith(".whl") and "*" not in word and "://" not in word:
            existing(word)


def npm(words: list[str]) -> None:
    among(words[:1], {"install", "i", "ci", "run", "init", "create", "exec"}, "verb")
    if words[0] in ("install", "i"):
        _, rest = spread(words[1:], "--save-dev -D --save -g", "")
        packages = json.loads(
            (REPOSITORY / "clients/javascript/package-lock.json").read_text("utf-8")
        )["packages"]
        ours = [
            json.loads(path.read_text("utf-8"))["name"]
            for path in REPOSITORY.glob("clients/javascript/*/package.json")
        ]
        known = [*ours, *(path.rpartition("node_modules/")[2] for path in packages)]
        among((re.sub(r"(?<=.)@[^@/]*$", "", word) for word in rest), known, "package")


def make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE)
    among((word for word in words if "=" not in word), targets, "target")


def git(words: list[str]) -> None:
    _, rest = spread(words[1:], "", "--depth --branch -b")
    if words[0] != "clone" or not rest:
        fail("only `git clone` is known")
    folder = Path(rest[1] if len(rest) > 1 else re.sub(r"\.git$", "", rest[0]).rpartition("/")[2])
    for name in COPIED:
        source, target = REPOSITORY / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)


def nginx(words: list[str]) -> None:
    given, _ = spread(words, "-t -q", "-c -s -p -g")
    for path in given.get("-c", []):
        existing(path)
    among(given.get("-s", []), {"reload", "reopen", "quit", "stop"}, "signal")


def caddy(words: list[str]) -> None:
    among(words[:1], {"adapt", "fmt", "reload", "run", "start", "stop", "validate"}, "verb")
    given, _ = spread(words[1:], "--overwrite --force --watch", "--config --adapter")
    for path in given.get("--config", []):
        existing(path)


def sudo(words: list[str]) -> None:
    _, rest = options(words, "-E -H -n -i", "-u -g")
    os.execvp(rest[0], rest)


def ignore(words: list[str]) -> None:
    """Accept any arguments."""


if __name__ == "__main__":
    name = Path(sys.argv[0]).name
    known = {
        f.__name__: f
        for f in (docker, kubectl, systemctl, journalctl, pip, npm, make, git, nginx, caddy, sudo)
    }
    known.get(name.replace("-", "_"), ignore)(sys.argv[1:])

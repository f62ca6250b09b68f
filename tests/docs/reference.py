"""The generated parts of docs/reference: `python -m tests.docs.reference` writes them, a test compares them.

A page has them between `<!-- generated: NAME -->` and `<!-- end -->`; what stands around them is written by hand.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from typer.core import TyperArgument, TyperGroup
from typer.main import get_command

from fullrank.cli import build_app
from fullrank_service.base.settings import PREFIX, Settings
from tests.docs.pages import DOCS, anchor

REFERENCE = DOCS / "reference"
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_METHODS = ("POST", "GET", "PUT", "PATCH", "DELETE")
_TAGS = {
    "search": "Search", "documents": "Document", "rules": "Rule", "events": "Event and analytics",
    "experiments": "Experiment", "models": "Model", "health": "Health",
}  # fmt: skip


def settings() -> Iterator[str]:
    """Yield the table of settings."""
    yield from ("| setting | default | what it does |", "|---|---|---|")
    for name, entry in Settings.model_fields.items():
        default = "unset" if entry.default is None else f"`{str(entry.default).lower()}`"
        yield f"| `{PREFIX}{name.upper()}` | {default} | {entry.description} |"


# The command line


def commands() -> Iterator[str]:
    """Yield a section for each command."""
    yield from _group(get_command(build_app()), "fullrank")


def _group(group: Any, path: str) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, TyperGroup):
            yield from _group(command, f"{path} {name}")
        elif not command.hidden:
            yield from _command(command, f"{path} {name}")


def _command(command: Any, path: str) -> Iterator[str]:
    shown = [one for one in command.params if one.name != "help" and not one.hidden]
    positional = [one for one in shown if isinstance(one, TyperArgument)]
    words = [path, *map(_metavar, positional)] + ["[OPTIONS]"] * (len(shown) > len(positional))
    usage = " ".join(words)
    yield from (f"## {path}", "", f"`{usage}`", "", _paragraphs(command.help or ""), "")
    if not shown:
        return
    yield from ("| | default | |", "|---|---|---|")
    for one in shown:
        if isinstance(one, TyperArgument):
            name = f"`{_metavar(one)}`"
        else:
            names = ", ".join(f"`{text}`" for text in [*one.opts, *one.secondary_opts])
            value = "" if one.is_flag else f" `{_value(one)}`"
            name = names + value
        yield f"| {_cell(name)} | {_default(one)} | {_cell(one.help or '')} |"
    yield ""


def _metavar(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).replace("...", "…")
    return name if argument.required else f"[{name.strip('[]')}]"


def _value(option: Any) -> str:
    choices = getattr(option.type, "choices", None)
    return option.metavar or ("|".join(map(str, choices)) if choices else option.type.name.upper())


def _default(one: Any) -> str:
    if one.required:
        return "required"
    if one.default in (None, False, "", []) or callable(one.default) or one.show_default is False:
        return ""
    if isinstance(one.default, bool):
        return "on"
    value = getattr(one.default, "value", one.default)
    values = value if isinstance(value, (list, tuple)) else [value]
    return ", ".join(f"`{text}`" for text in values)


# The HTTP API


@cache
def openapi() -> Any:
    return json.loads((DOCS / "openapi.json").read_text("utf-8"))


def operations() -> list[tuple[str, str, Any]]:
    """Return method, path and operation, without those of the collections, which are the same."""
    found = [
        (method.upper(), path, operation)
        for path, methods in openapi()["paths"].items()
        for method, operation in methods.items()
        if "/collections/" not in path
    ]
    return sorted(
        found, key=lambda one: (not one[1].startswith("/v1/search"), one[1], _METHODS.index(one[0]))
    )


def requests() -> Iterator[str]:
    """Yield the table of all requests."""
    yield from ("| request | what it does | scope |", "|---|---|---|")
    for tag in _TAGS:
        for method, path, operation in operations():
            if operation["tags"] == [tag]:
                text = _cell(operation["description"].split("\n\n")[0])
                link = f"[`{method} {path}`](#{anchor(f'{method} {path}')})"
                yield f"| {link} | {text} | {_scope(operation)} |"


def _scope(operation: Any) -> str:
    return ", ".join(scope for one in operation.get("security", []) for scope in one["key"])


def routes() -> Iterator[str]:
    """Yield a section for each request, by kind."""
    for tag, title in _TAGS.items():
        yield from (f"## {title} requests", "")
        for method, path, operation in operations():
            if operation["tags"] == [tag]:
                yield from _route(method, path, operation)


def _route(method: str, path: str, operation: Any) -> Iterator[str]:
    yield from (f"### {method} {path}", "", _paragraphs(operation["description"]), "")
    scope = _scope(operation)
    yield from (f"Scope: `{scope}`." if scope else "Needs no key.", "")
    parameters = [
        (one["name"], one["schema"] | {k: one[k] for k in ("description",) if k in one}, one.get("required", False))
        for one in operation.get("parameters", [])
    ]  # fmt: skip
    if parameters:
        yield from _table("parameter", parameters)
    if "requestBody" in operation:
        for kind, content in operation["requestBody"]["content"].items():
            schema = content["schema"]
            shown = "" if kind == "application/json" else f" (`{kind}`)"
            yield from (f"Body{shown}: {_type(schema)}.", "")
    answers = dict(operation["responses"])
    content = answers.pop("200").get("content", {})
    [schema] = [one.get("schema", {}) for one in content.values()] or [{}]
    yield from ((f"Reply: {_type(schema)}." if schema else "Reply: text."), "")
    yield from (f"[Errors](#errors): {', '.join(answers)}.", "")


def shapes() -> Iterator[str]:
    """Yield a section for each object of bodies and replies."""
    for name, schema in sorted(openapi()["components"]["schemas"].items()):
        yield from (f"### {name}", "")
        if schema.get("description"):
            yield from (_paragraphs(schema["description"]), "")
        if schema.get("properties"):
            required = schema.get("required", [])
            fields = [(field, entry, field in required) for field, entry in schema["properties"].items()]  # fmt: skip
            yield from _table("field", fields)


def _table(what: str, fields: list[tuple[str, Any, bool]]) -> Iterator[str]:
    yield from (f"| {what} | type | |", "|---|---|---|")
    for name, schema, is_required in fields:
        text = _cell(schema.get("description", ""))
        default = schema.get("default")
        if "default" in schema and default not in (None, [], {}):
            text += f"{'; ' if text else ''}default `{json.dumps(default)}`"
        elif is_required and what == "parameter":
            text += f"{'; ' if text else ''}required"
        yield f"| `{name}` | {_type(schema)} | {text} |"
    yield ""


def _type(schema: Mapping[str, Any]) -> str:
    """Describe a type in words, with links to named ones."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema or "oneOf" in schema:
        kinds = dict.fromkeys(_type(one) for one in schema.get("anyOf", schema.get("oneOf")))
        return " or ".join(kinds)
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{json.dumps(v)}`" for v in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return f"list: {', '.join(map(_type, schema['prefixItems']))}"
        return f"list of {_type(schema.get('items', {}))}" + _limits(schema, "minItems", "maxItems")
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"object of {_type(values)}" if isinstance(values, dict) and values else "object"
    if kind == "string":
        return "text" + _limits(schema, "minLength", "maxLength", " characters")
    if kind in ("integer", "number"):
        limits = _limits(schema, "minimum", "maximum")
        return ("whole number" if kind == "integer" else "number") + limits
    return {"boolean": "true or false", "null": "null"}.get(str(kind), "any JSON value")


def _limits(schema: Mapping[str, Any], low: str, high: str, unit: str = "") -> str:
    least, most = schema.get(low), schema.get(high)
    if least is None and most is None:
        return ""
    if most is None:
        return f", at least {least:,}{unit}"
    return f", {least:,} to {most:,}{unit}" if least is not None else f", at most {most:,}{unit}"


# Words


def _paragraphs(text: str) -> str:
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(" ".join(part.split()) for part in parts)


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\|", " ".join(text.split()))


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "settings": settings,
    "commands": commands,
    "requests": requests,
    "routes": routes,
    "shapes": shapes,
}


def written(page: Path) -> str:
    """Return a page with its generated parts as they are now."""

    def replaced(match: re.Match[str]) -> str:
        lines = "\n".join(line.rstrip() for line in PARTS[match[2]]())
        text = re.sub(r"\n{3,}", "\n\n", lines).strip()
        return f"{match[1]}\n{text}\n\n{match[3]}"

    return _PART.sub(replaced, page.read_text("utf-8"))


if __name__ == "__main__":
    for path in sorted(REFERENCE.glob("*.md")):
        path.write_text(written(path), "utf-8")

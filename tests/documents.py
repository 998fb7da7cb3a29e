"""Writes the pages of `docs/` that are made from the code: `python -m tests.documents`; a test keeps them current."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from deedbox import facets, hookspecs, settings

DOCS = Path(__file__).resolve().parents[1] / "docs"


def paragraphs(text: str | None) -> str:
    return inspect.cleandoc(text or "")


def page(title: str, source: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", f"*Made from {source} by `python -m tests.documents`.*", *parts]) + "\n"


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    cells = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells)


# --- hooks --------------------------------------------------------------------------------------------------------


def hooks() -> str:
    """Every hook with what it yields, in the order of the file."""
    found = [value for name, value in vars(hookspecs).items() if name.startswith("deedbox_")]
    parts = [
        f"## `{hook.__name__}` → `{hook.__annotations__['return']}`\n\n{paragraphs(hook.__doc__)}" for hook in found
    ]
    return page("Hooks", "`deedbox.hookspecs`", paragraphs(hookspecs.__doc__), *parts)


# --- facets -------------------------------------------------------------------------------------------------------


def subscribable() -> list[facets.Facet]:
    points = sorted(entry_points(group=facets.GROUP), key=lambda point: point.name)
    return [point.load().facet for point in points if point.dist and point.dist.name == "deedbox"]


def facet(record: facets.Facet) -> str:
    """What one facet brings, needs, promises and does not promise."""
    needs = ", ".join(f"`{name}`" for name in record.requires) or "nothing"
    promises = [f"- {sentence}" for sentence in record.obligations]
    refuses = [f"- Not promised: {sentence}" for sentence in record.non_obligations]
    head = f"## `{record.name}`\n\n{record.summary}\n\nRequires {needs}.\n"
    return "\n".join([head, *promises, *refuses]).strip()


def facet_page() -> str:
    return page("Facets", "the facet records", *map(facet, subscribable()))


# --- settings -----------------------------------------------------------------------------------------------------


def inner(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a key that is a table."""
    annotation: Any = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def kind(field: FieldInfo) -> str:
    """The value's type in the words of JSON Schema, or its words where it is one of a few."""
    annotation: Any = field.annotation
    schema = TypeAdapter(annotation).json_schema()
    members = schema.get("anyOf", [schema])
    if words := [f"`{word}`" for member in members for word in member.get("enum", ())]:
        return " or ".join(words)
    types = [str(member.get("type", member.get("$ref", ""))) for member in members]
    return " or ".join(each.rpartition("/")[2] for each in types if each not in ("null", ""))


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    value = field.get_default(call_default_factory=True)
    shown = list(value) if isinstance(value, tuple) else value
    return f"`{shown}`" if shown not in (None, "", [], {}) else ""


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """The string under each field, read from the source: the running node has no use for it."""
    (made,) = ast.parse(inspect.getsource(model)).body
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(made.body if isinstance(made, ast.ClassDef) else [])
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def tables(model: type[BaseModel], name: str) -> Iterator[str]:
    """A heading and a table for the model and for each table in it."""
    keys = {key: field for key, field in model.model_fields.items() if inner(field) is None}
    if keys:
        meant = meanings(model)
        rows = [(f"`{key}`", kind(field), default(field), meant.get(key, "")) for key, field in keys.items()]
        columns = ("key", "type", "default", "meaning")
        yield f"## `[{name}]`\n\n{paragraphs(model.__doc__)}\n\n{table(columns, rows)}"
    for key, field in model.model_fields.items():
        if (below := inner(field)) is not None:
            yield from tables(below, f"{name}.{key}")


def setting_page() -> str:
    """Every key of the file: the kernel's tables, then the facets'."""
    tops = ((name, inner(field)) for name, field in settings.Settings.model_fields.items())
    kernel = [part for name, model in tops if model for part in tables(model, name)]
    of_facets = [part for record in subscribable() for part in tables(record.settings, f"facets.{record.name}")]
    source = "the models of `deedbox.settings` and of the facets"
    return page("Settings", source, paragraphs(settings.__doc__), *kernel, *of_facets)


# --- clauses ------------------------------------------------------------------------------------------------------


def clauses() -> str:
    """What `deedbox conformance URL` tries, claim by claim."""
    parts = []
    for point in sorted(entry_points(group="deedbox_conformance"), key=lambda point: point.name):
        module: Any = point.load()
        found = [(f"`{each.id}`", each.keyword, each.sentence, each.reference) for each in module.CLAUSES]
        columns = ("id", "keyword", "what must hold", "where it stands")
        parts.append(f"## {point.name}\n\n{paragraphs(module.__doc__)}\n\n{table(columns, found)}")
    return page("Clauses", "the clauses of `deedbox_conformance`", *parts)


PAGES: dict[str, Callable[[], str]] = {
    "clauses.md": clauses,
    "facets.md": facet_page,
    "hooks.md": hooks,
    "settings.md": setting_page,
}


def main() -> int:
    DOCS.mkdir(exist_ok=True)
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the architecture tests look at: our own files, read once, without asking git (a bare machine has none)."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("node", "plugins", "wellknown", "conformance")
TEXTS = {".py", ".md", ".toml", ".json", ".lock", ".html", ".css", ".js", ".txt", ""}
NOT_OURS = {"__pycache__", "build", "dist", "vectors"}


@dataclass(frozen=True)
class Source:
    """One Python file: where it is, what it says, and what that means."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


def ours(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return not any(part in NOT_OURS or (part.startswith(".") and part != ".ci") for part in parts)


@cache
def sources() -> tuple[Source, ...]:
    """Every Python file of the four source roots."""
    files = (file for root in SOURCE_ROOTS for file in sorted((ROOT / root).rglob("*.py")) if ours(file))
    return tuple(Source(file, text := file.read_text(encoding="utf-8"), ast.parse(text)) for file in files)


@cache
def texts() -> dict[str, str]:
    """Every text file of the checkout by its name, generated and fetched ones left out."""
    files = (file for file in sorted(ROOT.rglob("*")) if file.suffix in TEXTS and ours(file) and file.is_file())
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


def packages() -> list[str]:
    """The names of the import packages that the source roots hold."""
    return sorted({Path(source.name).parts[1] for source in sources()})

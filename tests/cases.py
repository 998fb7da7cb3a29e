"""Which rows of the specification pages no test carries: the program behind `./run cases [PAGE…]`.

An id is the page and the row, `fed:A4`. A test carries one by the literal argument of `@pytest.mark.case`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SPEC = ROOT.parent / "shared" / "spec"


@dataclass(frozen=True)
class Rows:
    """Where a page keeps its cases: the file, the section that holds them, and how one begins."""

    file: str
    section: str
    row: str
    prefix: str = ""
    numbered: bool = False

    def ids(self, spec: Path) -> Iterator[str]:
        """The row's own names, in the order of the page."""
        section = chapter((spec / self.file).read_text(encoding="utf-8"), self.section)
        found = re.findall(self.row, section, re.MULTILINE)
        names = [str(place) for place in range(1, len(found) + 1)] if self.numbered else found
        yield from (self.prefix + name for name in names)


PAGES: dict[str, tuple[Rows, ...]] = {
    "fed": (Rows("federation-cases.md", "", r"^\| ([A-Z]\d+)\b"),),
    "email": (Rows("email-cases.md", "", r"^\| ([A-Z]\d+)\b"),),
    "mcp": (Rows("mcp.md", "11", r"^\| (\d+) \|"),),
    "a2a": (Rows("a2a.md", "17", r"^\| (\d+) \|"),),
    "acp": (Rows("acp.md", "9", r"^\| (\d+) \|"),),
    "osz": (Rows("osz.md", "11", r"^(\d+)\. "),),
    "oip": (
        Rows("oip.md", "25", r"^\| ([CF]\d+[a-z]?) \|"),
        Rows("oip.md", "25", r"\b(N\d+) (?=[A-Za-z`])"),
        Rows("oip.md", "29", r"^\| (W\d+)\b"),
    ),
    "clasp": (
        Rows("openclasp.md", "26", r"^\| (W\d+) \|"),
        Rows("openclasp.md", "27", r"^- \[ \] ", "27.", numbered=True),
    ),
}


def chapter(page: str, number: str) -> str:
    """The text of the section with that number up to the next of its rank; the whole page for no number."""
    if not number:
        return page
    found = re.search(rf"^## {number}\. .*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return found.group() if found else ""


def known(page: str, spec: Path = SPEC) -> list[str]:
    """Every id of a page, once each, in the order of the page."""
    return list(dict.fromkeys(f"{page}:{name}" for rows in PAGES[page] for name in rows.ids(spec)))


def carried(tests: Path = ROOT / "tests") -> set[str]:
    """Every id that some test's mark names."""
    return {id_ for file in sorted(tests.rglob("*.py")) for id_ in marks(ast.parse(file.read_text(encoding="utf-8")))}


def marks(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "case":
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))


def main(pages: list[str]) -> int:
    """Prints the ids without a test; 0 for a report, 1 for a test that carries an id no page has, 2 for no pages."""
    strange = [page for page in pages if page not in PAGES]
    if strange or not SPEC.is_dir():
        why = f"no such page: {', '.join(strange)}; there are {', '.join(PAGES)}" if strange else f"no folder {SPEC}"
        print(f"cases: {why}", file=sys.stderr)
        return 2
    tested = carried()
    for page in pages or PAGES:
        ids = known(page)
        open_ = [id_ for id_ in ids if id_ not in tested]
        print(*open_, sep="\n", end="\n" if open_ else "")
        print(f"{page}: {len(ids) - len(open_)} of {len(ids)} cases are carried by a test", file=sys.stderr)
    unknown = sorted(tested - {id_ for page in PAGES for id_ in known(page)})
    for id_ in unknown:
        print(f"cases: a test carries {id_}, which no page has", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

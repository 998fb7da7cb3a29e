"""`./run cases` finds the rows of the pages and the marks of the tests, and no test carries an id that no page has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import cases


def test_rows_and_marks_meet(tmp_path: Path) -> None:
    (tmp_path / "federation-cases.md").write_text("## A. One\n| # | report |\n|---|---|\n| A1 ⚙ | x |\n| A2 | y |\n")
    (tmp_path / "test_it.py").write_text('@pytest.mark.case("fed:A2", "fed:Z9")\ndef test_it() -> None: ...\n')
    assert cases.known("fed", tmp_path) == ["fed:A1", "fed:A2"]
    assert cases.carried(tmp_path) == {"fed:A2", "fed:Z9"}


@pytest.mark.parametrize(
    ("page", "first", "last", "count"),
    [
        ("fed", "fed:A1", "fed:G6", 63),
        ("a2a", "a2a:1", "a2a:32", 32),
        ("acp", "acp:1", "acp:20", 20),
        ("osz", "osz:1", "osz:11", 11),
        ("oip", "oip:C1", "oip:W60", 131),
        ("clasp", "clasp:W1", "clasp:27.37", 72),
    ],
)
def test_a_page_is_read_whole(shared_dir: Path, page: str, first: str, last: str, count: int) -> None:
    ids = cases.known(page, shared_dir / "spec")
    assert (ids[0], ids[-1], len(ids)) == (first, last, count)


def test_every_carried_id_stands_on_a_page(shared_dir: Path) -> None:
    known = {id_ for page in cases.PAGES for id_ in cases.known(page, shared_dir / "spec")}
    assert cases.carried() - known == set()

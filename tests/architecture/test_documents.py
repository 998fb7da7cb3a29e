"""The pages made from the code are current, and no page points at nothing."""

from __future__ import annotations

import re

import pytest

from tests import documents
from tests.architecture.sources import ROOT, texts

PAGES = sorted(name for name in texts() if name.endswith(".md") and not name.startswith("tests/"))


@pytest.mark.parametrize("name", documents.PAGES)
def test_a_page_made_from_the_code_is_current(name: str) -> None:
    written = (documents.DOCS / name).read_text(encoding="utf-8")
    assert written == documents.PAGES[name](), "run: .venv/bin/python -m tests.documents"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_points_at_files_that_exist(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", texts()[name])
    assert [link for link in links if not (ROOT / name).parent.joinpath(link).exists()] == []

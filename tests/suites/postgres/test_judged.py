"""A node on PostgreSQL before the judge: every clause passes there, too."""

from __future__ import annotations

import os
from pathlib import Path

from tests import postgres
from tests.conformance.courtroom import CLAUSES, faults, judged


async def test_every_clause_passes_on_postgresql(tmp_path: Path) -> None:
    with postgres.scratch(os.environ[postgres.VARIABLE]) as url:
        report = await judged(tmp_path, node={"database": url})
    assert not faults(report), faults(report)
    assert (report["passed"], report["conformant"]) == (CLAUSES, True)

"""Shared by the tests of the judge."""

from __future__ import annotations

import pytest

from tests.conformance.world import Papers, make_papers


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """An authority and a certificate, made once."""
    return make_papers(tmp_path_factory.mktemp("papers"))

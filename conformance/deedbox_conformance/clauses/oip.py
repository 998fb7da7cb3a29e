"""The claim every node makes by publishing `/.well-known/oip.json`: to be found, and to read and write envelopes."""

from __future__ import annotations

from deedbox_conformance.clauses import discovery, shape, signature

CLAUSES = [*discovery.CLAUSES, *shape.CLAUSES, *signature.CLAUSES]

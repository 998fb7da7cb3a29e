"""The claim every node makes by publishing `/.well-known/oip.json`: to be found, and to read and write envelopes."""

from __future__ import annotations

from deedbox_conformance.clauses import discovery, shape, signature

# Signatures before shapes: a node may cease to write refusals of strangers when they are many, and a ledger clause
# looks for one of the forgeries later.
CLAUSES = [*discovery.CLAUSES, *signature.CLAUSES, *shape.CLAUSES]

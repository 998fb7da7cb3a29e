"""The clauses, one module a claim; each module ends in ``CLAUSES``."""

"""The kernel's tables: ledger, claims, quotas, processes, acts, keys, jobs."""

from __future__ import annotations

from alembic import op

from deedbox.storage.columns import append_only, blob, flag, integer, number, text

revision = "0001"
down_revision = None

APPEND_ONLY = ("ledger_entry", "ledger_event", "ledger_batch", "ledger_checkpoint", "ledger_tile", "ledger_invocation")


def upgrade() -> None:
    _ledger()
    _road()
    _keys()
    _jobs()


def _ledger() -> None:
    op.create_table("ledger_entry", integer("seq", key=True), blob("header"), blob("leaf"))
    op.create_table("ledger_payload", integer("seq", key=True), blob("salt"), blob("payload"))
    op.create_table("ledger_event", integer("id", key=True), integer("ts"), blob("leaf"), blob("salt"), blob("event"))
    op.create_table("ledger_batch", integer("first", key=True), integer("last"), integer("seq"))
    op.create_table("ledger_checkpoint", integer("size", key=True), text("note"))
    op.create_table("ledger_tile", integer("place", key=True), blob("hashes"))
    op.create_table("ledger_invocation", text("id", key=True), integer("seq", null=True), integer("event", null=True))
    for table in APPEND_ONLY:
        append_only(table)


def _road() -> None:
    op.create_table(
        "govern_claim",
        text("key", key=True),
        text("digest"),
        text("state"),
        integer("at"),
        integer("kept_until"),
        text("owner"),
        integer("grp"),
        blob("reply", null=True),
        text("meta", null=True),
        flag("undelivered"),
    )
    op.create_index("ix_govern_claim_kept_until", "govern_claim", ["kept_until"])
    op.create_table("govern_handed", text("key", key=True), integer("at"))
    op.create_index("ix_govern_handed_at", "govern_handed", ["at"])
    op.create_table("govern_quota", text("key", key=True), integer("used_until"))
    op.create_table("govern_process", text("id", key=True), integer("lease_until"))
    op.create_table(
        "govern_act",
        text("invocation", key=True),
        integer("seq"),
        integer("lease_until"),
        text("actor"),
        text("object_key"),
    )


def _keys() -> None:
    op.create_table(
        "identity_key",
        text("thumbprint", key=True),
        text("agent"),
        text("alg"),
        text("jwk"),
        integer("not_before"),
        integer("not_after", null=True),
    )
    op.create_index("ix_identity_key_agent", "identity_key", ["agent"])


def _jobs() -> None:
    op.create_table(
        "jobs_job",
        number("id"),
        text("kind"),
        text("key"),
        text("payload"),
        integer("run_at"),
        integer("attempts"),
        integer("lease_until", null=True),
        text("lease_token", null=True),
        text("state"),
        text("last_error", null=True),
    )
    op.create_index("uq_jobs_job_kind_key", "jobs_job", ["kind", "key"], unique=True)
    op.create_index("ix_jobs_job_state_run_at", "jobs_job", ["state", "run_at"])

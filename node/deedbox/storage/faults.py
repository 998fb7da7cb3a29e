"""What a driver raises where an operator, and no programmer, can mend it, in one line; for commands alone."""

from __future__ import annotations

import sqlite3
import sys

from deedbox.refusals import Fault, Refusal


def unusable(error: BaseException) -> Refusal | None:
    """A database that cannot be opened, as a refusal; nothing for any other fault."""
    driver = getattr(error, "orig", None) or error  # SQLAlchemy wraps what a driver raised
    if type(driver) is sqlite3.DatabaseError or isinstance(driver, sqlite3.OperationalError):
        return _refusal(first_line(driver))
    psycopg = sys.modules.get("psycopg")  # imported only where a node uses it
    if psycopg is None or not isinstance(driver, psycopg.Error) or driver.sqlstate is not None:
        return None
    away = isinstance(driver, psycopg.OperationalError)
    return _refusal(first_line(driver) if away else "it is no address of a PostgreSQL database")


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


def _refusal(why: str) -> Refusal:
    return Refusal("unusable_database", 500, why, next_step="see node.database in the settings", fault=Fault.OURS)

"""A PostgreSQL cluster of one's own for as long as a command runs: a temporary folder, a free port, no root.

`python -m tests.postgres COMMAND …` runs the command with DEEDBOX_TEST_POSTGRES naming the database, then stops the
server and removes the folder. PostgreSQL refuses to run as root, so root starts it as `postgres` or `nobody`.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "DEEDBOX_TEST_POSTGRES"
OLDEST = 15
ADVICE = "no PostgreSQL server found: on Debian install the package postgresql-15"


class NoServer(RuntimeError):
    """This machine has no server program, or the one it has did not start."""


@dataclass(frozen=True)
class Programs:
    """The server's programs and the account they run under."""

    folder: Path
    account: pwd.struct_passwd

    def run(self, name: str, *arguments: str) -> None:
        """Runs one of them to its end, unprivileged; raises `NoServer` with what it said."""
        change = {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        ended = subprocess.run(
            [str(self.folder / name), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
            check=False,
            **(change if os.geteuid() == 0 else {}),  # type: ignore[call-overload]
        )
        if ended.returncode:
            raise NoServer(f"{name} failed: {ended.stdout.strip()}")


def find() -> Programs:
    """The newest installed server of version 15 or later."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=version, reverse=True)
    on_path = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    for folder in (*(each for each in debian if version(each) >= OLDEST), *on_path):
        if all((folder / name).exists() for name in ("initdb", "pg_ctl", "createdb", "postgres")):
            return Programs(folder, unprivileged())
    raise NoServer(ADVICE)


def version(folder: Path) -> int:
    return int(re.sub(r"\D.*", "", folder.parent.name) or 0)


def unprivileged() -> pwd.struct_passwd:
    """Ourselves, unless we are root."""
    if os.geteuid():
        return pwd.getpwuid(os.geteuid())
    names = {account.pw_name: account for account in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def cluster(*, durable: bool = True) -> Iterator[str]:
    """Yields the URL of an empty database on a server that lives as long as the block; raises `NoServer`.

    One that is not `durable` never waits for the disk: right for a test, wrong for a measurement.
    """
    programs, port = find(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="deedbox-postgres-"))
    try:
        os.chown(folder, programs.account.pw_uid, programs.account.pw_gid)
        files, log = str(folder / "files"), str(folder / "log")
        programs.run("initdb", "-D", files, "-U", "deedbox", "-A", "trust", "-E", "UTF8", "--locale", "C")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        options += "" if durable else " -c fsync=off"
        try:
            programs.run("pg_ctl", "start", "-w", "-D", files, "-l", log, "-o", options)
            programs.run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "deedbox", "deedbox")
            yield f"postgresql://deedbox@127.0.0.1:{port}/deedbox"
        finally:
            if (folder / "files/postmaster.pid").exists():
                programs.run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", files)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def scratch(server: str) -> Iterator[str]:
    """Yields the URL of an empty database of its own on the server that a URL names, and drops it afterwards."""
    import psycopg

    name = f"scratch_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
        try:
            yield server.rpartition("/")[0] + f"/{name}"
        finally:
            connection.execute(f"drop database {name} with (force)".encode())


def main(command: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped then, too
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        with cluster(durable=False) as url:
            return subprocess.run(command, env={**os.environ, VARIABLE: url}, check=False).returncode
    except NoServer as problem:
        print(f"postgres: {problem}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Plugins from outside: the one in `docs/plugins.md`, as printed there, and those of `docs/examples`.

Each is installed beside the node as a stranger would install it, without the network, found through its entry point,
and asked over HTTP in a node that is a process of its own.
"""

from __future__ import annotations

import http.client
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
EXAMPLES = ("deedbox-hours", "deedbox-noticeboard")
PRINTED = re.compile(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CLI = "from deedbox.cli import main; main()"
TOLD_AT_THE_END = """
import atexit, sys
atexit.register(lambda: print("loaded", *sorted(name for name in sys.modules if "." not in name), file=sys.stderr))
"""


@dataclass(frozen=True)
class Door:
    """A serving node, asked over HTTP."""

    port: int
    owner_key: str

    def call(self, method: str, target: str, body: bytes | None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def post(self, told: Any, **headers: str) -> tuple[int, Any]:
        return self.call("POST", "/api/dispatch", json.dumps(told).encode(), **headers)

    def as_owner(self, told: Any) -> tuple[int, Any]:
        return self.post(told, **{"x-terminal-key": self.owner_key})

    def ask(self, key: str, body: Any = "") -> tuple[int, Any]:
        return self.as_owner({"key": key, "body": body})

    def objects(self) -> set[str]:
        _, registry = self.call("GET", "/api/dispatch?registry=1", None)
        return {each["id"] for each in registry["objects"]}


@dataclass
class Home:
    """A node's folder, and the folder with the plugins that are installed beside it."""

    folder: Path
    site: Path
    owner_key: str = ""
    loaded: tuple[str, ...] = ()
    """The modules of the last process that served, told when it ended."""

    @property
    def environment(self) -> dict[str, str]:
        mine = {name: text for name, text in os.environ.items() if not name.startswith("DEEDBOX_")}
        paths = os.pathsep.join(filter(None, (str(self.site), mine.get("PYTHONPATH"))))
        return {**mine, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def deedbox(self, *arguments: str) -> str:
        done = self.run("-c", CLI, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def subscribe(self, table: str) -> None:
        """Add the table of a facet, and bring the schema to it."""
        with self.settings.open("a", encoding="utf-8") as file:
            file.write(f"\n{table}\n")
        self.deedbox("init", "--upgrade")

    @property
    def settings(self) -> Path:
        return self.folder / "deedbox.toml"

    def change(self, old: str, new: str) -> None:
        text = self.settings.read_text(encoding="utf-8")
        assert text.count(old) == 1
        self.settings.write_text(text.replace(old, new), encoding="utf-8")

    @contextmanager
    def serving(self) -> Iterator[Door]:
        command = [sys.executable, "-c", TOLD_AT_THE_END + CLI, "serve", "--listen", "127.0.0.1:0"]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=self.folder, env=self.environment, **pipes) as process:
            assert process.stdout is not None
            ready = process.stdout.readline()
            try:
                assert ready.startswith("ready: node.example on http://127.0.0.1:"), ready
                yield Door(int(ready.rpartition(":")[2]), self.owner_key)
            finally:
                process.terminate()
                _, said = process.communicate(timeout=20)
        assert process.returncode == 0, said
        self.loaded = tuple(said.splitlines()[-1].split()[1:])


def printed(page: Path) -> dict[str, str]:
    """The files a page prints: each fence that follows a line with nothing but a name."""
    return dict(PRINTED.findall(page.read_text(encoding="utf-8")))


def install(site: Path, *distributions: Path) -> None:
    """Beside the node and without an index; where there is no pip, by unpacking the wheel as pip would."""
    if importlib.util.find_spec("pip") is not None:
        how = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet")
        command = ["-m", "pip", "install", *how, "--target", str(site), *map(str, distributions)]
        subprocess.run([sys.executable, *command], check=True, timeout=60)
        return
    for distribution in distributions:
        built = site.parent / f"{distribution.name}-dist"
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
        subprocess.run(build, cwd=distribution, check=True, capture_output=True, timeout=60)
        for wheel in built.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)


@pytest.fixture(scope="module")
def halt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution that `docs/plugins.md` prints, in a folder of its own."""
    folder = tmp_path_factory.mktemp("outside") / "deedbox-halt"
    for name, text in printed(DOCS / "plugins.md").items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def site(halt: Path) -> Path:
    """Where all three are installed."""
    folder = halt.parent
    copies = [Path(shutil.copytree(DOCS / "examples" / name, folder / name)) for name in EXAMPLES]
    install(folder / "site", halt, *copies)
    return folder / "site"


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory, site: Path) -> Home:
    """A node that was made once and never served."""
    made = Home(tmp_path_factory.mktemp("founded"), site)
    made.owner_key = json.loads(made.deedbox("init", "node.example", "--json"))["owner_key"]
    return made


@pytest.fixture
def home(tmp_path: Path, founded: Home) -> Home:
    """A copy of it."""
    return replace(founded, folder=Path(shutil.copytree(founded.folder, tmp_path / "home")))


def test_the_page_prints_a_whole_plugin_in_about_fifty_lines() -> None:
    files = printed(DOCS / "plugins.md")
    assert set(files) == {
        *("deedbox_halt/__init__.py", "deedbox_halt/migrations/0001_halt.py", "pyproject.toml"),
        "tests/test_halt.py",
    }
    written = [line for line in files["deedbox_halt/__init__.py"].splitlines() if line.strip()]
    assert 40 <= len(written) <= 55


def test_the_plugin_of_the_page_judges_a_real_node(home: Home) -> None:
    home.subscribe("[facets.halt]")
    with home.serving() as door:
        assert "HALT" in door.objects()
        status, ran = door.ask("NOW")
        assert (status, ran["ran"]) == (200, True)
        status, thrown = door.ask("HALT", {"key": "NOW", "reason": "the clock is wrong"})
        assert (status, json.loads(thrown["result"])) == (200, {"halted": True, "key": "NOW"})
        assert thrown["receipt"]["seq"] > 0
        status, refused = door.ask("NOW")
        assert (status, refused["error"], refused["note"]) == (403, "halted", "the clock is wrong")
        assert refused["receipt"]["id"] == f"entry:{refused['receipt']['seq']}"
        assert door.ask("HALT", {"key": "HALT"})[0] == 409
        assert door.ask("HALT", {"kee": "NOW"})[1]["error"] == "bad_arguments"
    assert "deedbox_halt" in home.loaded
    home.deedbox("verify")

    home.change("\n[facets.halt]\n", "")
    with home.serving() as door:
        assert "HALT" not in door.objects()
        assert door.ask("NOW")[1]["ran"]
        assert door.ask("HALT", {"key": "NOW"})[1]["error"] == "unknown_key"
    assert "deedbox_halt" not in home.loaded


def test_a_facet_without_its_schema_does_not_start(home: Home) -> None:
    with home.settings.open("a", encoding="utf-8") as file:
        file.write("\n[facets.halt]\n")
    refused = home.run("-c", CLI, "serve", "--listen", "127.0.0.1:0")
    assert refused.returncode == 1
    assert "schema_behind" in refused.stderr
    assert "deedbox init --upgrade" in refused.stderr


def test_the_page_tells_how_to_check_it(home: Home) -> None:
    listed = {row["facet"]: row for row in json.loads(home.deedbox("plugins", "list", "--json"))}
    assert listed["halt"]["distribution"] == "deedbox-halt 0.1.0"
    assert not listed["halt"]["on"]
    checked = json.loads(home.deedbox("plugins", "check", "halt", "--json"))
    assert checked["ok"]
    assert checked["contributes"] == {"deedbox_objects": 1, "deedbox_policies": 1}


def test_the_tests_of_the_page_pass(halt: Path, site: Path) -> None:
    tested = Home(halt, site).run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert "2 passed" in tested.stdout


def test_the_examples_keep_hours_and_a_board(home: Home) -> None:
    now = datetime.now(UTC)
    later, gone = (f"{now + timedelta(hours=hours):%H:%M:%S}" for hours in (2, -1))
    home.subscribe(f"[facets.noticeboard]\n\n[facets.hours]\nopens = {later}\ncloses = {later}")
    pinned: dict[str, Any] = {"key": "NOTICE_PIN", "body": {"text": "The library is closed on Friday."}}
    with home.serving() as door:
        _, minted = door.as_owner({"mint": {"scope": "row:NOTICE_PIN", "uses": 3}})
        bearer = {"authorization": f"Bearer {minted['share_token']}"}
        status, refused = door.post(pinned, **bearer)
        assert (status, refused["error"]) == (403, "closed")
        assert refused["receipt"]["seq"] > 0
        assert json.loads(door.ask("NOTICES")[1]["result"]) == {"notices": []}

    home.change(f"opens = {later}", f"opens = {gone}")
    with home.serving() as door:
        status, ran = door.post(pinned, **bearer)
        assert (status, ran["ran"]) == (200, True)
        assert ran["receipt"]["seq"] > 0
        _, read = door.post({"key": "NOTICES", "body": {"most": 1}})
        (notice,) = json.loads(read["result"])["notices"]
        assert notice["text"] == pinned["body"]["text"]
        assert notice["who"] == f"cap:{minted['fingerprint']}"


@pytest.mark.parametrize(
    ("opens", "closes", "now", "is_open"),
    [
        *((8, 18, 8, True), (8, 18, 17, True), (8, 18, 18, False), (8, 18, 7, False)),
        *((22, 6, 23, True), (22, 6, 5, True), (22, 6, 6, False), (22, 6, 12, False), (9, 9, 9, False)),
    ],
)
def test_hours_may_go_over_midnight(
    site: Path, monkeypatch: pytest.MonkeyPatch, opens: int, closes: int, now: int, is_open: bool
) -> None:
    monkeypatch.syspath_prepend(str(site))
    hours = importlib.import_module("deedbox_hours")
    assert hours.is_open(time(opens), time(closes), time(now)) is is_open

"""Settings: file, then environment, then arguments; closed, frozen, and told of in one line when they are wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deedbox.refusals import Refusal
from deedbox.settings import Secret, Section, Settings, checked, load, parse_address, parse_rate


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deedbox.toml"


def read(file: Path, text: str = "", **overrides: Any) -> Settings:
    file.write_text(f'[node]\ndomain = "alpha.test"\n{text}')
    return load(file, overrides)


def refused(file: Path, text: str, **overrides: Any) -> str:
    with pytest.raises(Refusal) as no:
        read(file, text, **overrides)
    assert no.value.code == "bad_settings"
    assert "\n" not in no.value.detail
    return no.value.detail


# --- layers ----------------------------------------------------------------------------------------------------------


def test_a_domain_is_all_that_must_be_said(file: Path) -> None:
    found = read(file)
    assert (found.node.domain, found.node.agents, found.facets) == ("alpha.test", ("node",), {})
    assert (found.limits.inbox.rate, found.limits.inbox.unverified, found.limits.inbox.bytes) == (
        "60/min",
        "5/min",
        131_072,
    )
    with pytest.raises(Refusal, match=r"settings\.node"):
        checked(Settings, {}, "settings")


def test_the_environment_lies_over_the_file_and_arguments_over_both(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '[limits.inbox]\nrate = "1/s"\nunverified = "1/s"\nbytes = 2048\n'
    monkeypatch.setenv("DEEDBOX_LIMITS__INBOX__RATE", "2/s")
    monkeypatch.setenv("DEEDBOX_LIMITS__INBOX__UNVERIFIED", "2/s")
    found = read(file, text, limits={"inbox": {"unverified": "3/s"}})
    assert (found.limits.inbox.bytes, found.limits.inbox.rate, found.limits.inbox.unverified) == (2048, "2/s", "3/s")


def test_the_environment_may_switch_a_facet_on_and_set_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEDBOX_FACETS", '{"inbox": {"echo_unbound": true}}')
    assert read(file, "[facets.wellknown]\n").facets == {"wellknown": {}, "inbox": {"echo_unbound": True}}


def test_paths_start_at_the_folder_of_the_file(file: Path, tmp_path: Path) -> None:
    found = read(file, 'keys = "secret"\ndevelopment = "../dev"\n[node.tls]\ncertificate = "c.pem"\nkey = "/k.pem"\n')
    assert found.node.keys == tmp_path / "secret"
    assert found.node.database == f"sqlite:///{tmp_path / 'deedbox.db'}"
    assert found.node.development == tmp_path / "../dev"
    assert (found.node.tls.certificate, found.node.tls.key) == (tmp_path / "c.pem", Path("/k.pem"))
    assert read(file, 'database = "postgresql://me@db.test/x"\n').node.database == "postgresql://me@db.test/x"


def test_settings_do_not_change(file: Path) -> None:
    found = read(file)
    with pytest.raises(ValidationError):
        found.limits = None  # type: ignore[assignment]
    with pytest.raises(ValidationError):
        found.node.domain = "beta.test"


# --- slips -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zonne = 'UTC'\n", "did you mean zone?"),
        ("[limits.inbox]\nrat = '1/s'\n", "did you mean rate?"),
        ("[limmits]\n", "did you mean limits?"),
        ("[node_]\n", "settings.node_: there is no such key"),
        ("agents = 'node'\n", "settings.node.agents"),
        ("agents = []\n", "settings.node.agents: name at least one"),
        ("agents = ['node', 'node']\n", "settings.node.agents: name at least one agent, and each once"),
        ("agents = ['Node']\n", "settings.node.agents: 'Node' is no name"),
        ("[node.tls]\nmode = 'development'\n", "needs node.development"),
        ("zone = 'Mars/Olympus'\n", "settings.node.zone"),
        ("zone = '../UTC'\n", "settings.node.zone"),
        ("log = 'loud'\n", "settings.node.log"),
        ("trusted_proxies = ['proxy.test']\n", "settings.node.trusted_proxies"),
        ("[limits.inbox]\nrate = '0/min'\n", "settings.limits.inbox.rate"),
        ("[limits.inbox]\nrate = '1000000/h'\n", "settings.limits.inbox.rate"),
        ("[limits.inbox]\nrate = 'often'\n", "a rate is written 60/min"),
        ("[limits.inbox]\nbytes = 1023\n", "settings.limits.inbox.bytes"),
        ("[node.tls]\nmode = 'files'\ncertificate = 'c.pem'\n", "settings.node.tls"),
        ("facets = 1\n", "settings"),
        ("[node\n", "deedbox.toml"),
    ],
)
def test_a_slip_is_named_in_one_line(file: Path, text: str, said: str) -> None:
    assert said in refused(file, text)


def test_an_argument_or_variable_that_is_wrong_is_named_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "arguments.limits.inbox.rat" in refused(file, "", limits={"inbox": {"rat": "1/s"}})
    monkeypatch.setenv("DEEDBOX_LIMITS__INBOX__RAT", "1/s")
    assert "settings.limits.inbox.rat" in refused(file, "")
    monkeypatch.setenv("DEEDBOX_NODE__AGENTS", "node,post")
    assert "is not JSON where a list" in refused(file, "")


@pytest.mark.parametrize(
    "domain", ["", "127.0.0.1", "no domain", "localhost", "https://alpha.test", "a" * 64 + ".test"]
)
def test_what_is_no_domain_is_no_node(file: Path, domain: str) -> None:
    file.write_text(f'[node]\ndomain = "{domain}"\n')
    with pytest.raises(Refusal):
        load(file)


def test_development_is_for_test_names(file: Path) -> None:
    file.write_text('[node]\ndomain = "alpha.example"\ndevelopment = "dev"\n')
    with pytest.raises(Refusal, match=r"\.test domains only"):
        load(file)


def test_no_file_is_said_with_what_writes_one(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as no:
        load(tmp_path / "deedbox.toml")
    assert (no.value.code, no.value.next_step) == ("no_settings", "deedbox init DOMAIN writes one")


def test_a_file_that_is_no_text_is_said_in_one_line(file: Path, tmp_path: Path) -> None:
    file.write_bytes(b"[node]\ndomain = '\xff'\n")
    for path in (file, tmp_path):
        with pytest.raises(Refusal, match="bad_settings"):
            load(path)


# --- secrets ---------------------------------------------------------------------------------------------------------


class Smarthost(Section):
    password: Secret


def test_a_secret_is_where_its_reference_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smtp").write_text("hunter2\n")
    monkeypatch.setenv("SMTP_PASSWORD", "hunter3")
    by_file = checked(Smarthost, {"password": {"file": tmp_path / "smtp"}}, "facets.email")
    by_name = checked(Smarthost, {"password": {"env": "SMTP_PASSWORD"}}, "facets.email")
    assert (by_file.password.reveal(), by_name.password.reveal()) == ("hunter2", "hunter3")
    for found in (by_file, by_name):
        assert "hunter" not in f"{found!r}{found}{found.model_dump_json()}"


def test_a_secret_itself_is_refused_and_not_repeated() -> None:
    with pytest.raises(Refusal) as no:
        checked(Smarthost, {"password": "hunter2"}, "facets.email")
    assert no.value.detail.startswith("facets.email.password: a secret is a reference")
    assert "hunter2" not in no.value.detail


def test_a_secret_that_is_not_there_is_said_without_guessing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMTP_PASSWORD", raising=False)
    with pytest.raises(Refusal, match="secret_missing"):
        Secret(env="SMTP_PASSWORD").reveal()
    with pytest.raises(Refusal, match="secret_missing"):
        Secret(file=Path("nowhere/at/all")).reveal()
    for nowhere in ({}, {"env": "SMTP_PASSWORD", "file": "smtp"}):
        with pytest.raises(Refusal, match="in one place"):
            checked(Smarthost, {"password": nowhere}, "facets.email")


@pytest.mark.parametrize(("text", "rate"), [("60/min", (60, 60_000)), ("3/s", (3, 1_000)), ("100/h", (100, 3_600_000))])
def test_a_rate_is_so_many_in_so_long(text: str, rate: tuple[int, int]) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "address", ["8470", ":8470", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "::1:8470", "[::1]", "a:b", "[]:1"]
)
def test_an_address_names_its_host_and_its_port(file: Path, address: str) -> None:
    """A port alone would be every address of the machine."""
    assert "HOST:PORT" in refused(file, f'listen = "{address}"\n')


@pytest.mark.parametrize(
    ("address", "parts"), [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::]:443", ("::", 443)), ("a.test:1", ("a.test", 1))]
)
def test_an_address_is_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert parse_address(address) == parts

"""What the operator decides: one TOML file, then the environment, then arguments; closed, frozen, secret-free.

``DEEDBOX_LIMITS__INBOX__RATE=60/min`` overrides ``rate`` of ``[limits.inbox]``. A facet is on when its table
``[facets.NAME]`` is present; what is in the table is checked by the facet's own model. A secret is a reference,
``{ file = … }`` or ``{ env = … }``, resolved when it is used and never printed.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyAddress,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from deedbox.domains import domain_from_config
from deedbox.refusals import Fault, Refusal

_RATE = re.compile(r"(\d{1,6})/(s|min|h)")  # count * instant must fit 63 bits
_SPAN = {"s": 1_000, "min": 60_000, "h": 3_600_000}
_AGENT = re.compile(r"[a-z0-9._+-]{1,64}")  # as OIP 1.2 §3.1 has it before the @, in the case we compare in
_WORDING = {"extra_forbidden": "there is no such key", "missing": "must be set"}
"""Of faults that pydantic words for programmers."""


class Section(BaseModel):
    """A table of the file: closed, so that a typing slip is an error and not silence."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _checked_rate(text: str) -> str:
    if parse_rate(text)[0] < 1:
        raise ValueError("a rate of nothing: switch the facet off instead")
    return text


RateText = Annotated[str, AfterValidator(_checked_rate)]


def parse_rate(text: str) -> tuple[int, int]:
    """``60/min`` → (60, 60000): how many, in how many milliseconds."""
    found = _RATE.fullmatch(text)
    if not found:
        raise ValueError("a rate is written 60/min, 3/s or 100/h, at most 999999")
    return int(found[1]), _SPAN[found[2]]


def _checked_address(text: str) -> str:
    parse_address(text)
    return text


def parse_address(text: str) -> tuple[str, int]:
    """``127.0.0.1:8470`` → (127.0.0.1, 8470); an IPv6 address stands in brackets. Never a port alone: that is all."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    digits = port.isascii() and port.isdigit() and len(port) <= 5
    if not bare or (":" in bare) != (bare != host) or not digits or int(port) > 65_535:
        raise ValueError("an address is written HOST:PORT, such as 127.0.0.1:8470 or [::]:443")
    return bare, int(port)


AddressText = Annotated[str, AfterValidator(_checked_address)]


class Secret(Section):
    """A reference to a secret, never the secret."""

    file: Path | None = None
    env: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _never_literal(cls, given: Any) -> Any:
        if isinstance(given, str):
            raise ValueError("a secret is a reference: { file = … } or { env = … }")
        return given

    @model_validator(mode="after")
    def _in_one_place(self) -> Secret:
        if (self.file is None) == (self.env is None):
            raise ValueError("a secret is in one place: { file = … } or { env = … }")
        return self

    def reveal(self) -> str:
        """The secret's text, without a trailing newline."""
        if self.file is not None:
            try:
                return self.file.read_text().rstrip("\n")
            except OSError as error:
                raise Refusal("secret_missing", 500, f"{self.file}: {error.strerror}", fault=Fault.OURS) from None
        found = os.environ.get(self.env or "")
        if not found:
            raise Refusal("secret_missing", 500, f"nothing at {self.env or 'the reference'}", fault=Fault.OURS)
        return found


class Tls(Section):
    """Who speaks TLS: a ``proxy`` before us, ``files`` of our own, or the ``development`` authority (.test only)."""

    mode: Literal["proxy", "files", "development"] | None = None
    """Unsaid: ``development`` where ``node.development`` is set, else ``proxy``."""
    certificate: Path | None = None
    """The chain in PEM, for ``files``."""
    key: Path | None = None
    """Its private key in PEM, for ``files``."""

    @model_validator(mode="after")
    def _files_are_named(self) -> Tls:
        if self.mode == "files" and not (self.certificate and self.key):
            raise ValueError("mode files needs a certificate and its key")
        return self


class NodeSection(Section):
    """Whose node this is and where it keeps its things."""

    domain: Annotated[str, AfterValidator(lambda text: domain_from_config(text, development=True))]
    """The domain that this node speaks for."""
    agents: tuple[str, ...] = ("node",)
    """Who lives here: the names before the ``@``."""
    database: str = "sqlite:///deedbox.db"
    """``sqlite:///`` and a file, or ``postgresql://``."""
    keys: Path = Path("keys")
    """The folder of private keys, mode 0700."""
    listen: AddressText = "127.0.0.1:8470"
    """Address and port."""
    tls: Tls = Tls()
    trusted_proxies: tuple[IPvAnyAddress, ...] = ()
    """Addresses of proxies of our own: only what they say in ``X-Forwarded-For`` is believed, for shields and logs."""
    zone: str = "UTC"
    """The time zone of records (OIP 1.2 §1.3)."""
    development: Path | None = None
    """A folder with the development authority and resolver, shared by nodes of one machine; ``.test`` names only."""
    log: Literal["json", "text"] = "json"
    """One object a line, or lines for a person; a request is an object either way."""

    @field_validator("agents")
    @classmethod
    def _names(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if not _AGENT.fullmatch(name):
                raise ValueError(f"{name!r} is no name before an @: a-z, 0-9 and ._+-, at most 64")
        if not names or len(set(names)) < len(names):
            raise ValueError("name at least one agent, and each once")
        return names

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except ZoneInfoNotFoundError:
            raise ValueError(f"there is no time zone {name}") from None
        return name

    @model_validator(mode="after")
    def _development_is_for_test_names(self) -> NodeSection:
        if self.development and not self.domain.endswith(".test"):
            raise ValueError("node.development works for .test domains only")
        if self.tls.mode == "development" and not self.development:
            raise ValueError("mode development of node.tls needs node.development")
        return self


class InboxLimits(Section):
    """The laws of the signed inbox (OIP 1.2 §8.7)."""

    bytes: int = Field(default=131_072, ge=1_024)
    """The largest body."""
    rate: RateText = "60/min"
    """Envelopes of one proven domain."""
    unverified: RateText = "5/min"
    """Envelopes in the name of one domain that can't be proven."""


class DispatchLimits(Section):
    """The laws of the dispatch door."""

    bytes: int = Field(default=131_072, ge=1_024)
    """The largest body."""
    shield: RateText = "600/min"
    """Requests of one address."""


class ShieldLimits(Section):
    """Per address, in process, before any signature is looked at; at least four times the law (decision 36)."""

    address: RateText = "1200/min"
    """Requests of one address."""
    failures: RateText = "120/min"
    """Failed proofs in one sender's name."""


class Limits(Section):
    """The numbers of the seeds and the specification; a surface names its limits, the road applies them."""

    inbox: InboxLimits = InboxLimits()
    dispatch: DispatchLimits = DispatchLimits()
    shield: ShieldLimits = ShieldLimits()


class Settings(BaseSettings):
    """The whole file."""

    model_config = SettingsConfigDict(
        env_prefix="DEEDBOX_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    node: NodeSection
    limits: Limits = Limits()
    facets: dict[str, dict[str, Any]] = Field(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment over what we hand in (the file, then arguments merged over it are handed in by ``load``)."""
        return env_settings, init_settings


Model = TypeVar("Model", bound=BaseModel)


def load(path: Path | None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read the file, lay the environment over it, then the arguments; relative paths start at the file's folder."""
    told: dict[str, Any] = {}
    if path is not None:
        try:
            told = tomllib.loads(path.read_text())
        except FileNotFoundError:
            raise Refusal("no_settings", 500, f"no file {path}", next_step="deedbox init DOMAIN writes one") from None
        except OSError as error:
            raise Refusal("bad_settings", 500, f"{path.name}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as wrong:
            raise Refusal("bad_settings", 500, f"{path.name}: {wrong}") from None
    found = checked(Settings, told, "settings")
    if overrides:
        merged = _merged(found.model_dump(), overrides)
        found = checked(_Plain, merged, "arguments").settings()
    return _anchored(found, path.parent if path else Path.cwd())


class _Plain(Section):
    """The same shape without the environment, for the last layer."""

    node: NodeSection
    limits: Limits = Limits()
    facets: dict[str, dict[str, Any]] = Field(default_factory=dict)

    def settings(self) -> Settings:
        return Settings.model_construct(node=self.node, limits=self.limits, facets=self.facets)


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(under)
    for name, value in over.items():
        below = result.get(name)
        result[name] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def _anchored(found: Settings, folder: Path) -> Settings:
    node = found.node
    changes: dict[str, Any] = {"keys": folder / node.keys}
    if node.database.startswith("sqlite:///"):
        changes["database"] = f"sqlite:///{folder / node.database.removeprefix('sqlite:///')}"
    if node.development is not None:
        changes["development"] = folder / node.development
    tls = {name: folder / path for name in ("certificate", "key") if (path := getattr(node.tls, name))}
    if tls:
        changes["tls"] = node.tls.model_copy(update=tls)
    return found.model_copy(update={"node": node.model_copy(update=changes)})


def checked(model: type[Model], values: Mapping[str, Any], where: str) -> Model:
    """Validate, turning the first fault into one line that names the place and, for a slip, the nearest known key."""
    try:
        return model(**values)
    except ValidationError as wrong:
        faults = wrong.errors(include_url=False, include_input=False)
        first = min(faults, key=lambda fault: fault["type"] != "extra_forbidden")  # what is missing may be misspelt
        place = ".".join(str(part) for part in (where, *first["loc"]))
        hint = _nearest(model, first["loc"]) if first["type"] == "extra_forbidden" else ""
        raise Refusal("bad_settings", 500, f"{place}: {worded(first)}{hint}", fault=Fault.OURS) from None
    except SettingsError:
        said = 'a variable DEEDBOX_… is not JSON where a list or a table is wanted: write \'["node", "post"]\''
        raise Refusal("bad_settings", 500, said, fault=Fault.OURS) from None


def worded(fault: Mapping[str, Any]) -> str:
    """A fault that pydantic found, for whoever wrote the value."""
    return _WORDING.get(fault["type"]) or str(fault["msg"]).removeprefix("Value error, ")


def _nearest(model: type[BaseModel], path: tuple[int | str, ...]) -> str:
    known: Any = model
    for part in path[:-1]:
        field = known.model_fields.get(str(part)) if hasattr(known, "model_fields") else None
        known = field.annotation if field else known
    names = list(known.model_fields) if hasattr(known, "model_fields") else []
    close = difflib.get_close_matches(str(path[-1]), names, n=1, cutoff=0.0)
    return f" (did you mean {close[0]}?)" if close else ""

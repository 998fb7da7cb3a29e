"""Domain names: mapped once where a person types them, compared only as A-labels everywhere else.

IDNA 2008 (RFC 5891) after the UTS 46 mapping at the edge; LDH grammar of RFC 1123; agent ids by OIP 1.2 §3.1; names
that are never on the public internet by RFC 6761 and the IANA special-use registry.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, NoReturn

from deedbox.refusals import Refusal

DEVELOPMENT_SUFFIX = ".test"
MAX_DOMAIN = 253

_SPECIAL = ("local", "internal", "localhost", "onion", "arpa", "alt", "invalid")
_LABEL = r"(?:xn--[a-z0-9-]{0,58}[a-z0-9]|(?!..--)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})+")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_URL = re.compile(r"https://(?P<host>[^/?#@:\\\[\]]+)(?::(?P<port>[0-9]{1,5}))?(?P<path>[/?][!-~]*)?", re.IGNORECASE)
_PATH = re.compile(r"/[!-~]*")


class HttpsAddress(NamedTuple):
    """An https URL in checked parts: A-label host, port, and path with query (no fragment)."""

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        port = "" if self.port == 443 else f":{self.port}"
        return f"https://{self.host}{port}{self.path}"


def domain_from_config(text: str, *, development: bool = False) -> str:
    """The A-label form of a name a person typed; the one place where a name is mapped (UTS 46).

    ``development`` admits names under ``.test``. Raises ``Refusal("bad_domain")``.
    """
    import idna

    name = _without_root(text.strip())
    try:
        mapped = idna.encode(name, uts46=True, std3_rules=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        _refuse(text, "is not a valid internationalised domain name")
    return _checked(mapped.lower(), development)


def wire_domain(text: str, *, development: bool = False) -> str:
    """The lower-case form of a name another node sent, which must be A-labels already.

    Nothing is mapped here: what would look different after mapping is refused, so that what was signed and what we
    compare are the same name. A trailing dot is no part of an id. Raises ``Refusal("bad_domain")``.
    """
    if not text.isascii():
        _refuse(text, "is not in ASCII form (A-labels)")
    return _checked(text.lower(), development)


def https_address(url: str, *, development: bool = False) -> HttpsAddress:
    """The checked parts of an https URL another node sent; the fragment is dropped.

    Raises ``Refusal("bad_url")`` for another scheme, userinfo, an address literal or anything outside printable ASCII,
    and ``Refusal("bad_domain")`` for a host that is no domain.
    """
    found = _URL.fullmatch(url.partition("#")[0]) if url.isascii() else None
    if found is None or "\\" in url:
        raise Refusal("bad_url", 400, f"{url[:80]!a} is not a plain https URL")
    port = int(found["port"] or 443)
    if not 0 < port < 65536:
        raise Refusal("bad_url", 400, f"port {port} does not exist")
    path = found["path"] or "/"
    host = wire_domain(_without_root(found["host"]), development=development)
    return HttpsAddress(host, port, path if path.startswith("/") else "/" + path)


def https_path(path: str) -> str:
    """The path (and query) itself, if it can stand in a request line. Raises ``Refusal("bad_url")``."""
    if not _PATH.fullmatch(path) or "#" in path or "\\" in path:
        raise Refusal("bad_url", 400, f"{path[:80]!a} is not a plain path")
    return path


def belongs_to(host: str, domain: str) -> bool:
    """Whether a host is the domain or below it; both in the form ``wire_domain`` returns (OIP 1.2 §7.5, inbox rule)."""
    return host == domain or host.endswith("." + domain)


def is_development(name: str) -> bool:
    """Whether a checked name lies under ``.test``, which no public resolver answers (RFC 6761 §6.2)."""
    return name.endswith(DEVELOPMENT_SUFFIX)


@lru_cache(maxsize=4096)
def _checked(name: str, development: bool) -> str:
    if len(name) > MAX_DOMAIN:
        _refuse(name, "is longer than 253 characters")
    if "." not in name:
        _refuse(name, "has no dot")
    top = name.rpartition(".")[2]
    if _NUMBER.fullmatch(top):
        _refuse(name, "reads as an address, not as a name")
    if not _DOMAIN.fullmatch(name):
        _refuse(name, "is not made of letters, digits and hyphens between single dots")
    if top in _SPECIAL or (top == "test" and not development):
        _refuse(name, f"ends in .{top}, which is not on the public internet")
    if "xn--" in name:
        _check_idna(name)
    return name


def _check_idna(name: str) -> None:
    """A-labels must come back unchanged from their Unicode form: no fake and no unmapped ones (RFC 5891 §5.4)."""
    import idna

    try:
        again = idna.encode(idna.decode(name), uts46=True, std3_rules=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        _refuse(name, "holds an A-label that IDNA 2008 does not allow")
    if again != name:
        _refuse(name, "holds an A-label that stands for another name")


def _without_root(name: str) -> str:
    """The name without the one trailing dot that stands for the root; a second dot fails the grammar."""
    return name.removesuffix(".")


def _refuse(name: str, why: str) -> NoReturn:
    raise Refusal("bad_domain", 400, f"{name[:80]!a} {why}", next_step="Use a plain domain such as node.example.")

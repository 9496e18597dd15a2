"""Endpoint profiles of the operator's `endpoints.toml`: the models behind HTTP that may be used.

    [judge]
    protocol = "openai"                       # or "anthropic"
    base_url = "https://api.example.com/v1"
    model = "some-model"
    api_key_env = "EXAMPLE_API_KEY"           # the NAME of an environment variable; leave out where no key is needed

Tools take the name of a profile and nothing else, so that no conversation can choose where data is sent or which key goes
with it. What looks like a key in this file is refused, and is not repeated in the message.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from quintain.errors import InvalidInput, NotFound, Refused
from quintain.records.documents import read_toml
from quintain.records.labels.judging import Endpoint
from quintain.records.wording import explain, nearest, shown

_FIELDS = tuple(name for name in Endpoint.model_fields if name != "name")
_KEY_FIELD = re.compile(r"api[_-]?key|authorization|token$|secret|password|headers?", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


def read_profiles(path: Path) -> dict[str, Endpoint]:
    """The profiles of an `endpoints.toml`, by name; none where there is no file.

    Raises:
        InvalidInput: the file is not TOML, or a profile has a wrong or unknown field; names profile, field and what is valid.
        Refused: a key is in the file, or a URL would send it unencrypted to another machine.
    """
    return {name: _profile(name, table, path) for name, table in read_toml(path, "bad_endpoints").items()}


def find_profile(path: Path, name: str) -> Endpoint:
    """The profile of a name.

    Raises:
        NotFound: no such profile; with the existing names and how to write one.
        InvalidInput: as `read_profiles`.
        Refused: as `read_profiles`.
    """
    profiles = read_profiles(path)
    if name not in profiles:
        there = f"there are {', '.join(sorted(profiles))}" if profiles else "there is none yet"
        raise NotFound(
            f"no endpoint profile {shown(name)}{nearest(name, profiles)}; {there}. The operator writes one into {path}: "
            '[NAME] with protocol ("openai" or "anthropic"), base_url (Ollama: http://127.0.0.1:11434/v1), model and api_key_env',
            code="no_endpoint",
        )
    return profiles[name]


def require_safe_url(endpoint: Endpoint) -> None:
    """Refuse a text that is not a URL, a URL with a key, or one that would send one unencrypted to another machine.

    Raises:
        InvalidInput: it is not an http or https URL of a host, or has a query or a fragment.
        Refused: it has a user name or password, or is plain http to another machine without `allow_http`.
    """
    where = f"base_url of endpoint {endpoint.name!r}"
    try:
        url = urlsplit(endpoint.base_url)
        host, _ = url.hostname, url.port
    except ValueError:
        url, host = urlsplit(""), None
    if "@" in url.netloc:
        raise Refused(
            f"{where} has a user name or password (not shown); name an environment variable in api_key_env instead",
            code="key_in_file",
        )
    if url.scheme not in {"http", "https"} or not host or url.query or url.fragment:
        raise InvalidInput(
            f"{where} must be http(s)://HOST[:PORT][/PATH] without query or fragment, such as https://api.example.com/v1",
            code="bad_endpoints",
        )
    if url.scheme == "http" and not is_loopback(host) and not endpoint.allow_http:
        raise Refused(
            f"{where} is plain http to {host!r}: runs and key would travel unencrypted; use https, or set allow_http = true "
            "in the profile if that network is yours",
            code="plain_http",
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or an address is that of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _profile(name: str, table: object, path: Path) -> Endpoint:
    where = f"{path.name} [{name}]"
    if not isinstance(table, Mapping):
        raise InvalidInput(
            f"{path.name} has {name!r} outside of a profile; write [NAME] above the fields of each",
            code="bad_endpoints",
        )
    _refuse_keys(table, where)
    try:
        endpoint = Endpoint.model_validate({"name": name, **table})
    except ValidationError as error:
        raise InvalidInput(
            f"{explain(error, where, _FIELDS)}; the fields are {', '.join(_FIELDS)}", code="bad_endpoints"
        ) from None
    require_safe_url(endpoint)
    return endpoint


def _refuse_keys(table: Mapping[str, Any], where: str) -> None:
    remedy = "put the key into an environment variable and name that in api_key_env"
    extra = table.get("extra")
    for field in [*table, *(extra if isinstance(extra, Mapping) else ())]:
        if field not in _FIELDS and _KEY_FIELD.search(field):
            raise Refused(
                f"{where} has the field {field!r}: keys do not stand in this file; {remedy}", code="key_in_file"
            )
    variable = table.get("api_key_env")
    if variable is not None and not (isinstance(variable, str) and _VARIABLE.fullmatch(variable)):
        raise Refused(
            f"{where} has an api_key_env that is not the name of an environment variable (not shown, it may be a key); {remedy}",
            code="key_in_file",
        )

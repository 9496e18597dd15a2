"""Addresses of hosts in private networks: those of RFC 1918, RFC 6598 and RFC 4193.

Loopback addresses, and networks themselves (`10.0.0.0/8`), stay.
"""

from __future__ import annotations

import re
from functools import partial
from ipaddress import ip_address, ip_network

from quintain.redaction.secrets import EDGE, Rule, Span

_PRIVATE = tuple(map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")))
_ADDRESS = re.compile(
    EDGE + r"(?<!\.)(?<!==)(?P<host>\d{1,3}(?:\.\d{1,3}){3})(?P<prefix>/\d{1,2}(?!\d))?(?![\w-]|\.\w)", re.ASCII
)
_ADDRESS_6 = re.compile(EDGE + r"(?<!:)(?P<host>[0-9A-Fa-f:]{6,39})(?P<prefix>/\d{1,3})?(?![\w:])", re.ASCII)


def _private_address(text: str, at: int, pattern: re.Pattern[str]) -> Span | None:
    found = pattern.match(text, at)
    try:
        address = found and ip_address(found["host"])
    except ValueError:
        return None
    if not found or not address or not any(address in network for network in _PRIVATE):
        return None
    if found["prefix"] and _is_network(found.group()):
        return None
    return Span(*found.span("host"), "private_ip")


def _is_network(text: str) -> bool:
    """Return whether no bit of a host is set."""
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def private_address_rules() -> list[Rule]:
    """Return the rules for addresses of hosts in private networks."""
    version_4 = ("10.", "192.168.", *(f"172.{n}." for n in range(16, 32)), *(f"100.{n}." for n in range(64, 128)))
    version_6 = tuple(f"f{c}{pair:02x}:" for c in "cd" for pair in range(256))
    return [
        Rule(version_4, partial(_private_address, pattern=_ADDRESS)),
        Rule(version_6, partial(_private_address, pattern=_ADDRESS_6)),
    ]

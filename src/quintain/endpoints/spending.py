"""Usage of an endpoint, and its cost."""

from __future__ import annotations

from quintain.records.labels.judging import Endpoint
from quintain.records.record import Record


class Spent(Record):
    """Usage of a client."""

    requests: int = 0
    """HTTP requests, the repeated ones too."""
    retries: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unmetered: int = 0
    """Requests that may have cost tokens without reporting how many."""
    in_flight: int = 0
    """Requests that were sent and have not come to an end."""

    def plus(self, **more: int) -> Spent:
        """The same with so much more."""
        return self.model_copy(update={name: getattr(self, name) + n for name, n in more.items()})

    def usd(self, endpoint: Endpoint) -> float | None:
        """What the tokens cost by the endpoint's prices; None where prices or tokens are not known."""
        return None if self.unmetered else price(endpoint, self.input_tokens, self.output_tokens)


def price(endpoint: Endpoint, input_tokens: int | None, output_tokens: int | None) -> float | None:
    """What tokens cost in USD by the endpoint's prices; None where tokens or prices are not known."""
    price_in, price_out = endpoint.input_usd_per_mtok, endpoint.output_usd_per_mtok
    if input_tokens is None or output_tokens is None or price_in is None or price_out is None:
        return None
    return (input_tokens * price_in + output_tokens * price_out) / 1e6

"""Divides limits of the settings that each front process counts for itself; each process gets at least 1."""

import math

from service.settings import Settings

DIVIDED = (
    "max_connections",
    "cache_bytes",
    "upstream_concurrency",
)


def share_of(settings: Settings) -> Settings:
    """The settings of one front; 0 stays 0."""
    shares = {name: math.ceil(getattr(settings, name) / settings.processes) for name in DIVIDED}
    return settings.model_copy(update=shares | {"threads": math.ceil(settings.n_threads / settings.processes)})

"""Find the proxy that requests to a URL go through."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Proxy:
    """A proxy: its address without credentials, the variable that names it, and the host of the request."""

    address: str
    variable: str
    host: str

    @property
    def remedy(self) -> str:
        """What to do if the proxy does not work."""
        return f"check {self.variable}, or add {self.host} to NO_PROXY"


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy that HTTP clients take from the environment for this URL; None for a direct connection."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    scheme = parts.scheme if parts.scheme in proxies else "all"
    if scheme not in proxies or not proxies[scheme] or proxy_bypass(host):
        return None
    variable = next((name for name in os.environ if name.lower() == f"{scheme}_proxy"), f"the system's {scheme} proxy")
    return Proxy(_without_credentials(proxies[scheme]), variable, host)


def _without_credentials(address: str) -> str:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

"""Requests of web pages, which servers for programs of this machine refuse.

A page of any site can send requests to addresses of the machine that shows it. By a name of its own
that leads there (DNS rebinding) it could read the responses too, so both headers are checked.
"""

from __future__ import annotations

from urllib.parse import urlsplit

# Addresses that no other machine can reach.
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


def page_fault(host: str, host_header: str, origin: str | None) -> str:
    """The reason to refuse a request as that of a web page; "" for none.

    host: address that the server listens on. host_header, origin: headers of the request; programs
    send no origin.

    >>> page_fault("127.0.0.1", "localhost:8000", None)
    ''
    >>> page_fault("127.0.0.1", "evil.example", None)
    "Host 'evil.example' is no name of this machine: use 127.0.0.1"
    """
    try:
        name = urlsplit(f"//{host_header}").hostname
        is_foreign = origin is not None and urlsplit(origin).netloc != host_header
    except ValueError:
        # Of addresses such as "[".
        return f"Host {host_header!r:.200} or Origin {origin!r:.200} is no address"
    if host in LOOPBACK and name not in LOOPBACK:
        return f"Host {host_header!r:.200} is no name of this machine: use {host}"
    return f"requests of web pages are refused, here of {origin!r:.200}" if is_foreign else ""

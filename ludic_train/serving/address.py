"""Where a server listens."""

from __future__ import annotations

import socket

from ludic_gym.errors import ConfigError


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket with that address, 0 for any free port. Raises ConfigError where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    # As a server does: a port whose last connections are still closing can be taken.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigError(
            f"cannot listen on {host}:{port} ({error.strerror}): take another --port, 0 for any "
            "that is free"
        ) from error
    return bound


def url_of(host: str, port: int) -> str:
    """How this machine reaches a server that listens there."""
    written = f"[{host}]" if ":" in host else host
    reached = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(written, written)
    return f"http://{reached}:{port}"

"""URLs of queues, and their passwords, which belong in no URL."""

from __future__ import annotations

import re

from ludic_gym.errors import ConfigError

REDIS = ("redis://", "rediss://", "unix://")
FILE = "file://"
# Password of a Redis whose URL has none.
PASSWORD_VARIABLE = "LUDIC_QUEUE_PASSWORD"


def without_password(url: str) -> str:
    """The URL as it may stand in a message: user and password become "...".

    >>> without_password("redis://trainer:secret@host:6379/0")
    'redis://...@host:6379/0'
    """
    url = re.sub(r"(?<=[?&]password=)[^&]*", "...", url)
    scheme, _, rest = url.partition("://")
    # From the right, because a password that was not escaped may contain an @ itself.
    _, at, host = rest.rpartition("@")
    return f"{scheme}://{'...' if at else ''}{at}{host}"


def refuse_password(url: str | None) -> None:
    """Raise ConfigError for the URL of a queue that holds a password.

    Command lines are shown to every user of a machine, and files of a run are passed around.
    """
    if url is not None and has_password(url):
        raise ConfigError(
            f"queue {without_password(url)}: a password does not belong into an address, which "
            f"others can see; leave it out, and set {PASSWORD_VARIABLE}"
        )


def has_password(url: str) -> bool:
    """True for the URL of a queue that holds a password."""
    # Not by urlsplit: with an unescaped / or # in its password, a URL has other parts.
    return re.search(r"//[^/@]*:[^@]*@|[?&]password=", url) is not None

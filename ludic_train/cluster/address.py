"""Address of a run's queue, in the run's folder.

OUT/queue.json      url and key of the queue, and the servers that sample; replaced as a whole
OUT/queue.password  its password, if it has one; readable for the owner alone
OUT/published/      params for actors and servers
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from ludic_gym.errors import ConfigError
from ludic_train.queue_urls import PASSWORD_VARIABLE
from ludic_train.runs.folder import PASSWORD, QUEUE
from ludic_train.server_tokens import write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the groups of a run go.

    url, key, password: of the queue, as `open_queue` takes them.
    servers: addresses of the servers that sample; none where each actor samples by itself.
    """

    url: str
    key: str
    servers: tuple[str, ...] = ()
    password: str | None = field(default=None, repr=False)


def read_address(out: Path) -> Address | None:
    """The address in the run's queue.json; None where there is no such file, or not yet.

    The password is that of PASSWORD_VARIABLE, if it is set, else the one in the folder.
    Raises ConfigError for a file that names no queue, or for a password of another user.
    """
    path = out / QUEUE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        servers = tuple(map(str, record.get("servers", ())))
        return Address(
            url=str(record["url"]),
            key=str(record["key"]),
            servers=servers,
            password=os.environ.get(PASSWORD_VARIABLE) or _password(out),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} names no queue: {error!r}") from error


def write_address(out: Path, address: Address) -> None:
    """Write the run's queue.json, whole or not at all, and its password where it has one."""
    (out / PASSWORD).unlink(missing_ok=True)
    if address.password is not None:
        write_private(out / PASSWORD, address.password)
    # In one step: others wait for the file, and read it at any moment.
    draft = out / f".{QUEUE}"
    record = {"url": address.url, "key": address.key, "servers": address.servers}
    draft.write_text(json.dumps(record) + "\n", encoding="utf-8")
    draft.replace(out / QUEUE)


def _password(out: Path) -> str | None:
    """The password in the run's folder; None if there is none."""
    try:
        return (out / PASSWORD).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise ConfigError(
            f"{out / PASSWORD} belongs to another user; set {PASSWORD_VARIABLE}"
        ) from error

"""CachingClient: completions on disk, so that a second run sends no requests."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile

from ludic_gym.errors import ConfigError, DataError
from ludic_gym.records import from_json, to_json
from ludic_gym.types import ChatClient, Completion, Message, Sampling, ToolSchema


class CachingClient:
    """Client that sends a request to `client` only if its completion is not in `folder`.

    client: receives the requests that the folder lacks. Equal requests in flight at the same time
        are all sent.
    folder: one JSON file per completion; several processes may share it.
    model: all that a completion depends on besides the request: the model, its version, the
        server's options. Completions of different models never mix.
    The key is the model, the messages, the sampling parameters and the tools. Above temperature 0
    and without a seed, every completion is a new draw: such requests always go to the client.
    hits, misses: numbers of completions from the folder and from the client.
    Raises ConfigError for an empty `model`.

    >>> import asyncio
    >>> from tempfile import TemporaryDirectory
    >>> from ludic_gym import ScriptedClient
    >>> question, greedy = [{"role": "user", "content": "2 + 3 = ?"}], Sampling(temperature=0)
    >>> with TemporaryDirectory() as folder:
    ...     client = CachingClient(ScriptedClient(["5"]), folder, model="scripted")
    ...     texts = [asyncio.run(client.complete(question, greedy)).text for _ in range(2)]
    >>> texts, client.hits, client.misses
    (['5', '5'], 1, 1)
    """

    def __init__(self, client: ChatClient, folder: Path | str, *, model: str) -> None:
        if not model:
            raise ConfigError("a CachingClient needs the name of the model, got ''")
        self._client = client
        self._folder = Path(folder)
        self._model = model
        self.hits = 0
        self.misses = 0

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """The next assistant message, from the folder or from the client.

        Raises DataError for a file that cannot be read, and the errors of the client.
        """
        if sampling.seed is None and sampling.temperature > 0:
            self.misses += 1
            return await self._client.complete(messages, sampling, tools)
        path = self._path(messages, sampling, tools)
        if path.exists():
            self.hits += 1
            try:
                return from_json(Completion, json.loads(path.read_text(encoding="ascii")))
            # Not a miss, which would hide a damaged folder.
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path} holds no completion: {error!r}; delete it") from error
        completion = await self._client.complete(messages, sampling, tools)
        # After the request, so that a failed one is counted nowhere.
        self.misses += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        # Other processes see the whole file or none, and may write the same completion at once.
        with NamedTemporaryFile("w", encoding="ascii", dir=path.parent, delete=False) as file:
            json.dump(to_json(completion), file)
        os.replace(file.name, path)
        return completion

    def _path(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema]
    ) -> Path:
        request = [self._model, list(messages), asdict(sampling), list(tools)]
        # Sorted, because equal requests may have their keys in different orders.
        digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        # A single folder with very many files is slow on most file systems.
        return self._folder / digest[:2] / f"{digest[2:]}.json"

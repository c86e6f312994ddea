"""A vLLM for the time of a block, real or not."""

import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile

from ludic_train.cluster.servers.process import ended_with_log, launched, plugin_folder
from ludic_train.cluster.servers.supervisor import responds
from ludic_train.processes import free_port


@contextmanager
def started_server(model, options, vllm, flags=(), start_s=600.0):
    """A server that responds; stopped at the end of the block."""
    options = replace(options, port=free_port(options.host, options.port))
    with NamedTemporaryFile(suffix=".log") as file, plugin_folder() as plugin:
        log, began = Path(file.name), time.monotonic()
        server = launched(model, options, vllm, flags, plugin=plugin, log=log)
        try:
            while not responds(server.url):
                if server.process.poll() is not None or time.monotonic() - began > start_s:
                    raise ended_with_log("vLLM did not start", log)
                time.sleep(0.25)
            yield server
        finally:
            server.stop()

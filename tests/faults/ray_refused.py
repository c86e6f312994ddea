"""A server in a Ray cluster whose model does not exist: CLUSTER FOLDER; ends with its exit code."""

import sys
import time
from pathlib import Path

from ludic_train.cluster.ray_cluster import RayRoles, connect, disconnect


def main(address, folder):
    connect(address, 1, 0)
    roles = RayRoles(logs=Path(folder), env={}, out=Path(folder))
    words = ["-m", "ludic_gym", "serve", f"{folder}/none", "--engine", "local", "--port", "0"]
    roles.start("server", "server", [sys.executable, *words])
    while (ended := roles.ended()) is None:
        time.sleep(0.1)
    roles.stop()
    disconnect()
    return ended.code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

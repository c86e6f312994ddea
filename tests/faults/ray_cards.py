"""Ranks, a server and an actor in a Ray cluster that print their cards: CLUSTER FOLDER GPUS.

Ends with 2 and a message where the cluster has fewer GPUs than these roles are said to need.
"""

import sys
from pathlib import Path

import ray

from ludic_gym.errors import ConfigError
from ludic_train.cluster.ray_cluster import RayRoles, connect, disconnect

PRINT = (
    "import json, os; names = 'CUDA_VISIBLE_DEVICES', 'RANK', 'LOCAL_RANK', 'WORLD_SIZE'; "
    "print(json.dumps({name: os.environ.get(name) for name in names}))"
)


def main(address, name, gpus):
    try:
        connect(address, 2, float(gpus))
    except ConfigError as error:
        print(error)
        return 2
    folder = Path(name)
    roles = RayRoles(logs=folder, env={}, out=folder, cpus=0.5, ranks=2, rank_gpus=1, server_gpus=1)
    for kind in ("trainer", "server", "actor"):
        roles.start(kind, kind, [sys.executable, "-c", PRINT])
    ray.get([role.running for role in roles.roles])
    roles.stop()
    disconnect()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

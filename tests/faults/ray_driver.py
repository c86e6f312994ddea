"""A Redis and the trainer of a scene, as roles in a Ray cluster: CLUSTER FOLDER UPDATES BATCH."""

import json
import sys
import time
from pathlib import Path

from ludic_train.cluster.ray_cluster import RayRoles, connect, disconnect
from ludic_train.cluster.roles import start_redis
from ludic_train.queue_urls import PASSWORD_VARIABLE


def main(address, name, updates, batch):
    folder = Path(name)
    connect(address, 1, 0)
    roles = RayRoles(logs=folder / "logs", env={"OMP_NUM_THREADS": "1"}, out=folder)
    roles.logs.mkdir(exist_ok=True)
    url = start_redis(roles, folder / "redis")
    known = {"url": url, "password": roles.env[PASSWORD_VARIABLE]}
    (folder / "draft").write_text(json.dumps(known))
    (folder / "draft").rename(folder / "address.json")
    order = {"role": "trainer", "folder": name, "url": url, "key": "k"}
    order |= {"updates": int(updates), "batch": int(batch)}
    words = [sys.executable, "-m", "faults.program", json.dumps(order)]
    roles.start("trainer", "trainer", words)
    while (ended := roles.ended()) is None:
        time.sleep(0.1)
    roles.stop()
    disconnect()
    print("ended", ended)
    return ended.code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""The simulation of a cluster against cases that are worked out by hand."""

import random

import pytest
from cluster_events import Clock, Cluster, Station, simulated

# One rollout at a time, of 10 tokens that take 0.1 s each.
ONE = Cluster(
    actors=1,
    servers=1,
    groups_at_once=1,
    sequences=1,
    group=1,
    batch=1,
    max_lag=0,
    tokens=lambda rng: 10,
    token_s=0.1,
    env_s=0.5,
    admit_s=0.01,
    push_s=0.02,
    pop_s=0.03,
    encode_s=0.04,
    decode_s=0.1,
    update_s=2.0,
    publish_s=0.3,
)


def changed(**changes):
    return Cluster(**{name: getattr(ONE, name) for name in ONE.__slots__} | changes)


def test_one_group_at_a_time_takes_the_sum_of_its_times():
    found = simulated(ONE, updates=10, warm_up=3)
    # 0.01 + 0.5 + 10 * 0.1 + 0.04 + 0.02 + 0.03 + 0.1 + 2.0 + 0.3
    cycle_s = 4.0
    assert found.updates_per_s == pytest.approx(1 / cycle_s)
    assert found.busy == pytest.approx(
        {"trainer": 2.3 / 4, "servers": 1 / 4, "Redis": 0.06 / 4, "reader": 0.1 / 4}
    )
    assert (dict(found.lags), found.stale, found.bottleneck) == ({0: 10}, 0, "actors")


def test_a_trainer_slower_than_its_actors_is_always_busy_and_lags():
    found = simulated(changed(actors=4, servers=4, max_lag=2), updates=20, warm_up=10)
    assert found.busy["trainer"] == pytest.approx(1)
    assert found.updates_per_s == pytest.approx(1 / 2.3)
    # Three groups are under way at most: a new one begins at each update, and two are before it.
    assert (dict(found.lags), found.bottleneck) == ({2: 20}, "trainer")


def test_servers_that_are_the_bottleneck_sample_all_the_time():
    # 1 s each, 2 at once; the trainer takes 0.1 s.
    found = simulated(
        changed(actors=9, sequences=2, max_lag=8, update_s=0.1, publish_s=0.0), updates=100
    )
    assert found.busy["servers"] == pytest.approx(1)
    assert found.updates_per_s == pytest.approx(2, rel=0.02)
    assert found.bottleneck == "servers"


def test_reports_of_actors_slow_redis_down_and_can_take_all_of_it():
    # 50 actors whose reports take 10 ms each: half of each second, so all else takes twice as long.
    half = simulated(changed(actors=50, report_s=0.01), updates=10)
    assert half.updates_per_s == pytest.approx(1 / 4.06)
    assert half.busy["Redis"] == pytest.approx(0.5 + 0.06 / 4.06)
    full = simulated(changed(actors=100, report_s=0.01), updates=10)
    assert (full.updates_per_s, full.bottleneck) == (0, "Redis")


def test_a_queue_waits_as_long_as_pollaczek_and_khinchine_have_it():
    clock, rng, waits = Clock(), random.Random(0), []
    station = Station(clock, 1)

    def arrive():
        came = clock.now
        station.serve(1.0, lambda: waits.append(clock.now - came - 1))
        clock.after(rng.expovariate(0.5), arrive)

    arrive()
    clock.run(lambda: len(waits) >= 40_000)
    # M/D/1 with rho = 0.5 and a service of 1 s: rho / (2 (1 - rho)).
    assert sum(waits) / len(waits) == pytest.approx(0.5, rel=0.05)
    assert station.busy_s / clock.now == pytest.approx(0.5, rel=0.02)


def test_groups_under_way_are_their_rate_times_their_time():
    # 8 of 9 groups at once can be sampled, 3 s each, and the trainer takes no time: by Little's law
    # 8 / 3 a second. No actor is idle, and each group waits 3 / 8 s for a place.
    tokens = {"tokens": lambda rng: 30, "token_s": 0.1, "env_s": 0.0, "update_s": 0.0}
    times = dict.fromkeys(("admit_s", "push_s", "pop_s", "encode_s", "decode_s", "publish_s"), 0.0)
    found = simulated(changed(actors=9, servers=8, max_lag=8, **tokens, **times), updates=400)
    assert found.updates_per_s == pytest.approx(8 / 3, rel=0.02)


def test_an_actor_begins_its_next_group_before_its_batch_is_complete():
    found = simulated(changed(batch=4, max_lag=1, update_s=0.1, publish_s=0.0), updates=10)
    # One after the other: 0.01 + 0.5 + 10 * 0.1 + 0.04 + 0.02 each, while the rest overlaps.
    assert found.updates_per_s == pytest.approx(1 / (4 * 1.57))

"""The tree along which params go, for any number of machines and workers."""

from hypothesis import given
from hypothesis import strategies as st

from ludic_train.cluster.publish.tree import KNOWN, Place, tree_sources

TRAINER = ("10.0.0.1", 9)
places = st.lists(st.integers(1, 40), max_size=60).map(
    lambda hosts: {
        number: Place(address=(f"10.0.0.{host}", 100 + number), trainer=TRAINER)
        for number, host in enumerate(hosts)
    }
)


def parents(found):
    return {number: sources[0] for number, sources in found.items()}


def test_two_machines_fetch_from_the_trainer_and_two_from_each_of_them():
    hosts = [f"10.0.0.{i}" for i in range(2, 9)]
    workers = {n: Place(address=(h, 100), trainer=TRAINER) for n, h in enumerate(hosts)}
    found = tree_sources(workers, 2)
    # .2 and .3 are the trainer's; .4 and .5 those of .2; .6 and .7 those of .3; .8 is that of .4.
    assert [sources[0][0] for sources in found.values()] == [
        "10.0.0.1",
        "10.0.0.1",
        "10.0.0.2",
        "10.0.0.2",
        "10.0.0.3",
        "10.0.0.3",
        "10.0.0.4",
    ]
    assert found[6] == [("10.0.0.4", 100), ("10.0.0.2", 100), TRAINER]


def test_a_machine_gets_the_params_once_and_that_of_the_trainer_not_at_all():
    hosts = ["10.0.0.2", "10.0.0.2", "10.0.0.1", "10.0.0.2"]
    workers = {n: Place(address=(h, 100 + n), trainer=TRAINER) for n, h in enumerate(hosts)}
    assert parents(tree_sources(workers, 1)) == {
        0: TRAINER,
        1: ("10.0.0.2", 100),
        2: TRAINER,
        3: ("10.0.0.2", 100),
    }


def test_no_machine_is_sent_to_an_address_of_the_loopback_interface():
    near, far = ("127.0.0.1", 9), TRAINER
    workers = {
        0: Place(address=("127.0.0.2", 100), trainer=near),
        1: Place(address=("10.0.0.2", 101), trainer=far),
        2: Place(address=("127.0.0.3", 102), trainer=near),
        3: Place(address=("10.0.0.3", 103), trainer=far),
    }
    found = tree_sources(workers, 1)
    assert found[2] == [("127.0.0.2", 100), near]
    assert found[3] == [("10.0.0.2", 101), far]


@given(places, st.integers(1, 5))
def test_every_path_leads_to_the_trainer_by_ancestors_alone(workers, fan_out):
    found = tree_sources(workers, fan_out)
    number_of = {place.address: number for number, place in workers.items()}
    assert found.keys() == workers.keys()
    for number, (parent, *others) in found.items():
        assert [parent, *others][-1] == TRAINER
        if parent != TRAINER:
            # So every worker comes after its parent: there is no circle.
            assert number_of[parent] < number
            *ancestors, trainer = found[number_of[parent]]
            assert others == [*ancestors[: KNOWN - 1], trainer]


@given(places, st.integers(1, 5))
def test_an_uplink_carries_at_most_the_fan_out_and_the_depth_is_least(workers, fan_out):
    found = tree_sources(workers, fan_out)
    uploads, received = {}, {}
    for number, sources in found.items():
        sender, receiver = sources[0][0], workers[number].address[0]
        if sender != receiver:
            uploads[sender] = uploads.get(sender, 0) + 1
            received[receiver] = received.get(receiver, 0) + 1
    assert all(count <= fan_out for count in uploads.values())
    others = {place.address[0] for place in workers.values()} - {"10.0.0.1"}
    assert received == dict.fromkeys(others, 1)
    # Levels of a full tree that has room for all other machines.
    levels, room = 0, 0
    while room < len(others):
        levels += 1
        room += fan_out**levels
    # The number of machines on the way to each, without those that a worker does not know.
    depths = {TRAINER: 0}
    for number, sources in found.items():
        depths[workers[number].address] = depths[sources[0]] + 1
    firsts = {workers[n].address[0]: n for n in reversed(workers)}
    firsts.pop("10.0.0.1", None)
    assert max((depths[workers[n].address] for n in firsts.values()), default=0) == levels

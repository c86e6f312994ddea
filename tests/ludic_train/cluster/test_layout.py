"""Cards for servers and ranks, on 30 machines and on any other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludic_gym.errors import ConfigError
from ludic_train.cluster.layout import RANK_RESERVE, SERVER_SHARE, Card, Layout, Need, layout

GIB = 2**30
# GiB of (one rank alone, a whole server), and attention heads. A rank's params, gradients and
# moments are divided among the ranks; a quarter of a rank is not.
SMALL, SEVEN, LARGE = (12, 4, 14), (140, 20, 28), (600, 70, 40)


def machine(count, gib, model):
    """Cards named 0, 1 ... of `gib` GiB, and what the model needs on them."""
    alone, server, heads = model
    cards = [Card(name=str(i), bytes=gib * GIB) for i in range(count)]
    need = Need(
        rank_bytes=lambda n: GIB * alone * (0.25 + 0.75 / n), server_bytes=GIB * server, heads=heads
    )
    return cards, need


def drawn(found: Layout):
    """As "ranks | server | server", such as "0 1 | 2 3 | 4 5"."""
    return " | ".join([" ".join(found.ranks), *(" ".join(s.cards) for s in found.servers)])


# By hand. A server fits where its GiB / cards <= 0.9 x GiB of a card; a rank where
# alone x (0.25 + 0.75 / ranks) <= 0.92 x GiB of a card.
MACHINES = [
    # cards, GiB, model, servers, tensor parallel, expected
    (2, 24, SMALL, 1, None, "0 | 1"),
    (2, 80, SMALL, 0, None, "0 1"),
    (4, 24, SMALL, 1, None, "0 1 2 | 3"),
    (4, 24, SMALL, 2, None, "0 1 | 2 | 3"),
    (4, 24, SMALL, 3, None, "0 | 1 | 2 | 3"),
    (4, 24, SMALL, 1, 2, "0 1 | 2 3"),
    (5, 24, SMALL, 2, 2, "0 | 1 2 | 3 4"),
    (8, 24, SMALL, 4, None, "0 1 2 3 | 4 | 5 | 6 | 7"),
    (8, 24, SMALL, 7, None, "0 | 1 | 2 | 3 | 4 | 5 | 6 | 7"),
    (1, 80, SMALL, 0, None, "0"),
    # 140 x (0.25 + 0.75 / 3) = 70 <= 73.6; with two ranks it is 87.5.
    (4, 80, SEVEN, 1, None, "0 1 2 | 3"),
    (8, 80, SEVEN, 4, None, "0 1 2 3 | 4 | 5 | 6 | 7"),
    (8, 80, SEVEN, 2, 2, "0 1 2 3 | 4 5 | 6 7"),
    (8, 80, SEVEN, 1, 4, "0 1 2 3 | 4 5 6 7"),
    # 140 x (0.25 + 0.75 / 7) = 50 > 0.92 x 48 = 44.2, and <= 0.92 x 64 = 58.9.
    (8, 48, SEVEN, 1, None, "refused: each of 7 ranks needs 50.0 GiB"),
    (8, 64, SEVEN, 1, None, "0 1 2 3 4 5 6 | 7"),
    (4, 80, SEVEN, 2, None, "refused: each of 2 ranks needs 87.5 GiB, and card 0 has 80.0 GiB"),
    (8, 80, SEVEN, 1, 3, "refused: tensor_parallel=3 must be at least 1 and divide the 28"),
    (8, 80, SEVEN, 1, 0, "refused: tensor_parallel=0"),
    (8, 80, SEVEN, 2, 4, "refused: 2 servers of 4 cards take all of 8 cards"),
    # 70 / 1 <= 72 on a card of 80; on one of 64 two cards are needed, 35 <= 57.6.
    (8, 80, LARGE, 1, None, "refused: each of 7 ranks needs 214.3 GiB"),
    (8, 280, LARGE, 2, None, "0 1 2 3 4 5 | 6 | 7"),
    (16, 192, LARGE, 4, None, "refused: each of 12 ranks needs 187.5 GiB, and card 0 has 192.0"),
    # 600 x (0.25 + 0.75 / 8) = 206.25 <= 0.92 x 232 = 213.4.
    (16, 232, LARGE, 4, 2, "0 1 2 3 4 5 6 7 | 8 9 | 10 11 | 12 13 | 14 15"),
    (3, 80, SMALL, 3, None, "refused: 3 servers of 1 cards take all of 3 cards"),
    (2, 80, SMALL, 4, None, "refused: 4 servers of 1 cards take all of 2 cards"),
    (0, 80, SMALL, 1, None, "refused: cards=[]; name each card once"),
    (4, 80, SMALL, -1, None, "refused: servers=-1; it must be 0 or more"),
    (2, 2, SMALL, 1, None, "refused: a server needs 4.0 GiB, and 1 of the cards have 1.8 GiB"),
    # A server of 4 GiB fits on two cards of 3 GiB (2 <= 2.7), and ranks do not.
    (5, 3, SMALL, 1, None, "refused: each of 3 ranks needs 6.0 GiB, and card 0 has 3.0 GiB"),
    (6, 8, SMALL, 2, None, "0 1 2 3 | 4 | 5"),
    # One card: 0.92 x 24 - 12 = 10.08 GiB are left, 42 % of 24.
    (1, 24, SMALL, 1, None, "0 | 0"),
    (1, 80, SEVEN, 1, None, "refused: card 0 has 80.0 GiB, and a rank needs 140.0 GiB"),
    (1, 17, SMALL, 1, None, "refused: card 0 has 17.0 GiB, and a rank needs 12.0 GiB beside"),
]


@pytest.mark.parametrize(("count", "gib", "model", "servers", "width", "expected"), MACHINES)
def test_cards_are_dealt_out_as_by_hand(count, gib, model, servers, width, expected):
    cards, need = machine(count, gib, model)
    try:
        found = drawn(layout(cards, servers=servers, need=need, tensor_parallel=width))
    except ConfigError as error:
        found = f"refused: {error}"
    assert found == expected if not expected.startswith("refused") else found.startswith(expected)


@pytest.mark.parametrize(("gib", "share"), [(17.4, 0.23), (24, 0.42), (80, 0.77), (1000, 0.9)])
def test_the_server_beside_the_only_rank_gets_what_is_left(gib, share):
    # floor(100 x (0.92 x 17.4 - 12) / 17.4) = 23; 24: 42; 80: 77; 1000: 90.8, and at most 90.
    _, need = machine(1, 0, SMALL)
    found = layout([Card(name="GPU-a", bytes=int(gib * GIB))], servers=1, need=need)
    assert found.shared
    assert found.servers[0].share == share


def test_a_server_gets_as_many_cards_as_it_needs():
    # 70 GiB / 2 = 35 <= 0.9 x 48; the 40 heads divide by 2. Adapters alone are trained.
    cards, _ = machine(8, 48, LARGE)
    need = Need(rank_bytes=lambda n: 20 * GIB, server_bytes=70 * GIB, heads=40)
    assert drawn(layout(cards, servers=2, need=need)) == "0 1 2 3 | 4 5 | 6 7"
    assert drawn(layout(cards, servers=1, need=need)) == "0 1 2 3 4 5 | 6 7"


def test_names_stay_those_of_the_user_and_a_layout_prints():
    cards = [Card(name=name, bytes=80 * GIB) for name in ("6", "GPU-b", "2")]
    _, need = machine(1, 0, SMALL)
    found = layout(cards, servers=1, need=need, tensor_parallel=2)
    assert not found.shared
    assert str(found) == (
        "ranks        6\nserver-0     GPU-b, 2, tensor parallel 2, 90% of its memory"
    )
    with pytest.raises(ConfigError, match=r"cards=\['6', '6'\]; name each card once"):
        layout([cards[0], cards[0]], servers=0, need=need)


@given(
    sizes=st.lists(st.integers(1, 200), max_size=16),
    servers=st.integers(0, 9),
    width=st.none() | st.integers(1, 8),
    alone=st.floats(0.1, 400),
    server=st.floats(0.1, 200),
    heads=st.sampled_from([1, 9, 14, 28, 40, 64]),
)
def test_no_card_is_given_twice_and_nothing_exceeds_its_memory(
    sizes, servers, width, alone, server, heads
):
    cards = [Card(name=str(i), bytes=size * GIB) for i, size in enumerate(sizes)]
    _, need = machine(0, 0, (alone, server, heads))
    try:
        found = layout(cards, servers=servers, need=need, tensor_parallel=width)
    except ConfigError:
        return
    memory = {card.name: card.bytes for card in cards}
    of_servers = [name for each in found.servers for name in each.cards]
    given = [*found.ranks, *of_servers]
    assert len(found.servers) == servers
    widths = {len(each.cards) for each in found.servers}
    assert len(widths) <= 1
    assert all(heads % n == 0 and n == (width or n) for n in widths)
    used = dict.fromkeys(memory, 0.0)
    for each in found.servers:
        for name in each.cards:
            assert need.server_bytes / len(each.cards) <= each.share * memory[name] + 1
            assert each.share <= SERVER_SHARE
            used[name] += each.share * memory[name]
    for name in found.ranks:
        used[name] += need.rank_bytes(len(found.ranks))
    if found.shared:
        assert given == ["0", "0"]
        assert len(cards) == 1
    else:
        assert sorted(given) == sorted(memory)
        assert len(set(given)) == len(given)
    assert found.ranks
    for name, size in memory.items():
        assert used[name] <= (1 - (RANK_RESERVE if name in found.ranks else 0)) * size + 1

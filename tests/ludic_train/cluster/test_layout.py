"""Cards for servers and ranks."""

import pytest

from ludic_gym.errors import ConfigError
from ludic_train.cluster import layout as layouts
from ludic_train.cluster.layout import Layout, ServerCards, cards_env, layout, visible_cards


def drawn(found: Layout):
    """As "ranks | server | server", such as "0 1 | 2 3 | 4 5"."""
    return " | ".join([" ".join(found.ranks), *(" ".join(s.cards) for s in found.servers)])


@pytest.mark.parametrize(
    ("cards", "servers", "parallel", "expected"),
    [
        (1, 0, 1, "0"),
        (2, 1, 1, "0 | 1"),
        (4, 2, 1, "0 1 | 2 | 3"),
        (4, 1, 2, "0 1 | 2 3"),
        (8, 2, 2, "0 1 2 3 | 4 5 | 6 7"),
    ],
)
def test_servers_get_the_last_cards_and_ranks_the_others(cards, servers, parallel, expected):
    names = [str(i) for i in range(cards)]
    found = layout(names, servers=servers, tensor_parallel=parallel)
    assert drawn(found) == expected
    assert {server.share for server in found.servers} <= {0.9}


def test_one_card_is_shared_by_a_rank_and_a_server():
    found = layout(["5"], servers=1)
    assert found == Layout(servers=(ServerCards(cards=("5",), share=0.4),), ranks=("5",))
    assert str(found) == "ranks        5\nserver-0     5, 40% of its memory"


@pytest.mark.parametrize(("cards", "servers", "parallel"), [(2, 2, 1), (2, -1, 1), (2, 1, 0)])
def test_roles_without_a_card_are_refused(cards, servers, parallel):
    names = [str(i) for i in range(cards)]
    with pytest.raises(ConfigError, match="servers"):
        layout(names, servers=servers, tensor_parallel=parallel)


def test_cards_are_those_that_the_user_has_made_visible(monkeypatch):
    # As torch would print on a machine of three cards.
    monkeypatch.setattr(layouts, "COUNT", "print(3)")
    assert visible_cards(2, {}) == ["0", "1"]
    shown = {"CUDA_VISIBLE_DEVICES": "5, GPU-a,MIG-b"}
    assert visible_cards(3, shown) == ["5", "GPU-a", "MIG-b"]
    with pytest.raises(ConfigError, match=r"gpus=4, and torch finds 3 cards.*'5, GPU-a,MIG-b'"):
        visible_cards(4, shown)
    assert cards_env(["5", "GPU-a"]) == {"CUDA_VISIBLE_DEVICES": "5,GPU-a"}
    assert cards_env(["cpu:0"]) == {"CUDA_VISIBLE_DEVICES": ""}

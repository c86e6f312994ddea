from ludic_gym.envs.games.grids import shifted, shortest_path


def neighbours(n):
    return (("add", n + 1), ("double", 2 * n)) if n < 50 else ()


def test_up_is_a_row_less_and_left_a_column_less():
    assert [shifted((5, 5), d) for d in ("up", "down", "left", "right")] == [
        (4, 5),
        (6, 5),
        (5, 4),
        (5, 6),
    ]


def test_a_shortest_path_is_found():
    # 1, 2, 3, 6, 12, 13
    assert shortest_path(1, neighbours, lambda n: n == 12) == ("add", "add", "double", "double")
    assert shortest_path(1, neighbours, lambda n: n == 1) == ()


def test_there_may_be_no_path():
    assert shortest_path(1, neighbours, lambda n: n == 1000) is None

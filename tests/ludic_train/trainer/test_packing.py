from hypothesis import given
from hypothesis import strategies as st

from ludic_train.trainer import packing as layout
from ludic_train.trainer.packing import attention_tokens, cells, first_fit

lengths = st.lists(st.integers(1, 50), min_size=1, max_size=40)


def chunks_of_rows(sizes, **options):
    """Chunks of items that are rollouts of one row."""
    return layout.chunks_of_rows(sizes, [[i] for i in range(len(sizes))], **options)


def test_first_fit_puts_each_item_into_the_first_row_with_room():
    alone = [[i] for i in range(5)]
    assert first_fit(alone, [7, 5, 3, 4, 1], 8) == [[0, 4], [1, 2], [3]]
    # Of 7 and 1 tokens together there is room for nothing else.
    assert first_fit([[0, 4], [1], [2], [3]], [7, 5, 3, 4, 1], 8) == [[0, 4], [1, 2], [3]]


def test_long_and_short_items_share_rows_where_padding_would_waste_much():
    # One row of 100 and nine of 10 are 1000 cells padded and 200 packed.
    assert (
        cells(chunks_of_rows([100] + [10] * 9, token_budget=1000, packing=False), [100] + [10] * 9)
        == 1000
    )
    (chunk,) = chunks_of_rows([100] + [10] * 9, token_budget=1000)
    assert chunk == [list(range(10))]


def test_chunks_are_as_equal_as_their_number_allows():
    chunks = chunks_of_rows([10] * 6, token_budget=50)
    assert [len(chunk) for chunk in chunks] == [3, 3]


@given(lengths, st.integers(50, 400), st.integers(1, 4), st.booleans())
def test_every_item_is_in_one_row_of_one_chunk_within_the_budget(sizes, budget, ranks, packing):
    chunks = chunks_of_rows(sizes, token_budget=budget, world_size=ranks, packing=packing)
    assert sorted(i for chunk in chunks for row in chunk for i in row) == list(range(len(sizes)))
    assert all(cells([chunk], sizes) <= budget for chunk in chunks)


@given(lengths, st.integers(50, 400))
def test_packing_never_computes_more_cells(sizes, budget):
    packed = chunks_of_rows(sizes, token_budget=budget)
    padded = chunks_of_rows(sizes, token_budget=budget, packing=False)
    assert cells(packed, sizes) <= cells(padded, sizes) * 1.001


def test_long_items_keep_rows_of_their_own_beside_packed_short_ones():
    # 640 tokens in short items. A token in a row of width w costs 1 + w / 1000 with a mask, and
    # 1 + w / 2000 without: 780 for the long item, and then in rows of 60 without masks 989 (16 rows
    # of 60), of 256 893 (3 of 240), of 128 806 (6 of 120).
    sizes = [600] + [60, 60, 20, 20] * 4
    long, short = chunks_of_rows(sizes, token_budget=1000)
    assert long == [[0]]
    assert [sum(sizes[i] for i in row) for row in short] == [120] * 5 + [40]


def test_wider_models_pack_in_wider_rows():
    # A token in a row of width w costs 1 + w / a with a mask, and 1 + w / 2a without. At a = 1000,
    # rows of one item cost 600 * 1.3 + 840 * 1.14 = 1738, and two of 600 cost 1200 * 1.6 = 1920; at
    # a = 4000 600 * 1.075 + 840 * 1.035 = 1514, and 1200 * 1.15 = 1380.
    sizes = [600, 280, 140, 100]
    for width, expected in (256, [[[0]], [[1], [2], [3]]]), (1024, [[[0], [1, 2, 3]]]):
        attention = attention_tokens(width)
        assert chunks_of_rows(sizes, token_budget=1800, attention=attention) == expected

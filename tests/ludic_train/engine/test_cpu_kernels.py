"""The compiled kernels beside the same formulas in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ludic_gym.types import Sampling
from ludic_train.engine import cpu_kernels
from ludic_train.engine.cpu_kernels import LARGEST_HEAD, Kernels, kernels_for
from ludic_train.engine.sampling import choose, draws_of

NEEDS_COMPILER = pytest.mark.skipif(not cpu_kernels._compiler(), reason="there is no C++ compiler")
# Of the result's greatest value: half a unit in the last place, and float32's own sums.
ROUNDING = {torch.float32: 2e-6, torch.bfloat16: 2**-8}
DTYPES = list(ROUNDING)
# Numbers that one thread takes alone, as in the source.
ONE_THREAD = 2**15


@pytest.fixture(params=DTYPES, ids=str)
def kernels(request) -> Kernels:
    found = kernels_for(torch.zeros(1, dtype=request.param), 64)
    assert found is not None
    return found


@pytest.fixture
def random(kernels):
    """`random(*shape)`: normal numbers of the kernels' type, equal in each test."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator).to(kernels.dtype)


def assert_close(found: Tensor, expected: Tensor, parts: float = 1.0) -> None:
    """parts: roundings that the kernel makes."""
    allowed = parts * ROUNDING[found.dtype] * expected.abs().max().item()
    torch.testing.assert_close(found.double(), expected, atol=allowed, rtol=0)


def turned(heads: Tensor, cos: Tensor, sin: Tensor, eps: float | None) -> Tensor:
    """Heads [tokens, heads, size] with factors of the same shape, as the formulas say it."""
    low, high = heads.chunk(2, -1)
    rotated = heads * cos + torch.cat((high, low), -1) * sin
    if eps is None:
        return rotated
    return rotated / (heads.square().mean(-1, keepdim=True) + eps).sqrt()


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [1, 5, 3 * ONE_THREAD // 70])
def test_the_norm_of_a_sum(rows, kernels, random):
    hidden, more, weight = random(rows, 70), random(rows, 70), random(70)
    total = (hidden.double() + more.double()).to(kernels.dtype)
    expected = total.double() / (total.double().square().mean(-1, keepdim=True) + 0.1).sqrt()
    found, normed = kernels.added_norm(hidden, more, weight, 0.1)
    assert found.equal(total)
    assert found.data_ptr() == hidden.data_ptr()
    assert_close(normed, expected * weight.double(), parts=3)
    again, alone = kernels.added_norm(total, None, weight, 0.1)
    assert again.equal(total)
    assert alone.equal(normed)


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [1, 5, 3 * ONE_THREAD // 70])
def test_the_activation_of_rows_side_by_side_and_apart(rows, kernels, random):
    both = 5 * random(rows, 140)
    gate, up = both.chunk(2, -1)
    expected = torch.nn.functional.silu(gate.double()) * up.double()
    assert_close(kernels.gated(gate, up), expected)
    assert kernels.gated(gate.contiguous(), up.contiguous()).equal(kernels.gated(gate, up))
    assert kernels.gated(gate.contiguous(), up).equal(kernels.gated(gate, up))
    assert kernels.gated(gate, up.double()).equal(kernels.gated(gate, up))


@NEEDS_COMPILER
def test_the_activation_of_any_number_is_right_and_not_infinite():
    kernels = kernels_for(torch.zeros(1), 64)
    gate = torch.cat((torch.linspace(-86, 86, 4001), torch.tensor([-1e30, -100, 100, 1e30])))[None]
    found = kernels.gated(gate, torch.ones_like(gate))[0].double()
    expected = torch.nn.functional.silu(gate[0].double())
    torch.testing.assert_close(found[:-4], expected[:-4], atol=0, rtol=1e-6)
    torch.testing.assert_close(found[-4:], expected[-4:], atol=1e-7, rtol=1e-6)


@NEEDS_COMPILER
@pytest.mark.parametrize("eps", [None, 0.1])
@pytest.mark.parametrize(("tokens", "size"), [(1, 64), (7, 24), (3 * ONE_THREAD // 192, 64)])
def test_heads_are_turned_and_go_to_their_places(tokens, size, eps, kernels, random):
    queries, keys, slots = 6, 3, 40
    rows = -(-tokens // slots)
    heads = random(tokens, queries + 2 * keys, size)
    cos, sin, weight = random(tokens, 1, size), random(tokens, 1, size), random(9, size)
    swapped = weight.roll(size // 2, -1)
    cached = torch.zeros(2, rows, keys, slots, size, dtype=kernels.dtype).unbind()
    token = torch.arange(tokens)
    row, slot = token // slots, token % slots
    places = ((row[:, None] * keys + torch.arange(keys)) * slots + slot[:, None]).flatten()
    query = kernels.stored(heads, (cos, sin), (weight, swapped), cached, places, eps)
    factors = cos.double() * weight.double(), sin.double() * swapped.double()
    expected = turned(heads[:, :9].double(), *factors, eps)
    assert_close(query, expected[:, :queries])
    assert_close(cached[0][row, :, slot], expected[:, queries:])
    assert cached[1][row, :, slot].equal(heads[:, 9:])
    beyond = rows * slots - tokens
    assert sum(int((each == 0).all(-1).sum()) for each in cached) == 2 * keys * beyond


def attention(query: Tensor, cached: tuple[Tensor, Tensor], row: Tensor, lengths: Tensor) -> Tensor:
    """Attention [tokens, heads, size] in float64, as the formulas say it."""
    shared = query.shape[1] // cached[0].shape[1]
    found = torch.empty_like(query, dtype=torch.double)
    for number in row.unique():
        of_row = row == number
        key, value = (each[number].repeat_interleave(shared, 0).double() for each in cached)
        scores = torch.einsum("thd,hsd->ths", query[of_row].double(), key)
        beyond = torch.arange(key.shape[1]) >= lengths[of_row, None]
        scores[beyond[:, None].expand_as(scores)] = -torch.inf
        found[of_row] = torch.einsum("ths,hsd->thd", scores.softmax(-1), value)
    return found


@NEEDS_COMPILER
@pytest.mark.parametrize("size", [16, 64, 128, LARGEST_HEAD])
@pytest.mark.parametrize("queries", [2, 4, 6, 8, 14])
@pytest.mark.parametrize("tokens", [1, 9, ONE_THREAD // 100])
def test_attention_reads_the_slots_of_each_tokens_row_alone(tokens, queries, size, kernels, random):
    slots, rows = 67, 4
    query = random(tokens, queries, size) / size**0.5
    cached = random(rows, 2, slots, size), random(rows, 2, slots, size)
    row, lengths = torch.arange(tokens) % rows, torch.arange(tokens) % slots + 1
    found = kernels.attended(query, cached, row, lengths)
    assert_close(found, attention(query, cached, row, lengths))


# Tokens of each text that follow each other, and those before them. Around a block, the lengths of
# the second text follow those of the first.
TEXTS = {
    "shorter than a block": ([1, 3, 2, 3], [0, 0, 5, 40]),
    "around a block": ([4, 7, 8, 9, 17], [0, 4, 32, 30, 3]),
    "around a part": ([127, 128, 130, 300], [0, 0, 9, 1]),
}


@NEEDS_COMPILER
@pytest.mark.parametrize("texts", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("size", [16, 40, 64, LARGEST_HEAD])
def test_attention_of_texts(texts, size, kernels, random):
    counts, starts = texts
    row = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    ends = [torch.arange(count) + start + 1 for count, start in zip(counts, starts, strict=True)]
    lengths, slots = torch.cat(ends), max(map(sum, zip(counts, starts, strict=True)))
    query = random(len(row), 6, size) / size**0.5
    cached = tuple(random(len(counts), 2, slots, size) for _ in range(2))
    expected = attention(query, cached, row, lengths)
    # Nothing of the others' slots, nor of those that come later, is in a result.
    for each in cached:
        each[0, :, counts[0] + starts[0] :] = torch.nan
    threads, found = torch.get_num_threads(), []
    for number in (1, 2):
        torch.set_num_threads(number)
        found.append(kernels.attended(query, cached, row, lengths))
    torch.set_num_threads(threads)
    assert_close(found[0], expected)
    assert found[0].equal(found[1])


@NEEDS_COMPILER
def test_attention_of_tokens_of_a_row_in_any_order(kernels, random):
    lengths = torch.tensor([*range(1, 11), *range(10, 0, -1), 7, 7, 8, 9, 10, 11, 12])
    query, row = random(len(lengths), 6, 64) / 8, torch.zeros_like(lengths)
    cached = random(1, 2, 12, 64), random(1, 2, 12, 64)
    found = kernels.attended(query, cached, row, lengths)
    assert_close(found, attention(query, cached, row, lengths))


def needs_products(kernels: Kernels) -> None:
    if not kernels.panel:
        pytest.skip(f"this processor has no products of {kernels.dtype}")


@NEEDS_COMPILER
def test_there_are_products_where_the_processor_has_the_instructions(kernels):
    facts = cpu_kernels._processor().split()
    # oneDNN's products are taken where there are instructions for bfloat16, but no matrix unit.
    is_dnns = kernels.dtype is torch.bfloat16 and b"avx512_bf16" in facts
    expected = b"avx2" in facts and (not is_dnns or b"amx_bf16" in facts)
    assert (kernels.panel > 0) == expected


# One output, a panel and a part of one, several; inputs of one tile and of more.
SHAPES = [(1, 32), (50, 64), (96, 576), (133, 1536)]


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [1, 5, 8, 9, 16, 17, 32, 33, 300])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_are_those_of_the_matrix(rows, shape, kernels, random):
    needs_products(kernels)
    weight, bias, x = random(*shape), random(shape[0]), random(rows, shape[1])
    # Float32 sums of so many numbers differ by their order.
    parts = 1.0 if kernels.dtype is torch.bfloat16 else 3.0
    expected = x.double() @ weight.double().T
    assert_close(kernels.matrix(weight, None)(x), expected, parts)
    found = kernels.matrix(weight, bias)(x)
    assert_close(found, expected + bias.double(), parts)
    assert kernels.matrix(weight.double(), bias.double())(x.double()).equal(found)


@NEEDS_COMPILER
def test_a_rows_product_is_the_same_to_the_bit_in_any_batch_and_with_two_threads(kernels, random):
    needs_products(kernels)
    weight, x = random(500, 576), random(300, 576)
    matrix = kernels.matrix(weight, None)
    assert weight.numel() > ONE_THREAD
    threads = torch.get_num_threads()
    found = []
    for number in (1, 2):
        torch.set_num_threads(number)
        found.append(matrix(x))
        assert kernels.matrix(weight, None).panels.equal(matrix.panels)
    torch.set_num_threads(threads)
    assert found[0].equal(found[1])
    with pytest.raises(ValueError, match="rows of 32 numbers and a matrix of 576 inputs"):
        matrix(x[:, :32])
    for size in (1, 2, 7, 16, 31, 299):
        last = matrix(x[-size:].contiguous())
        assert last.equal(found[0][-size:])


@NEEDS_COMPILER
def test_products_leave_those_of_torch_as_they_are(random, kernels):
    needs_products(kernels)
    weight, x = random(96, 576), random(40, 576)
    expected = torch.nn.functional.linear(x, weight)
    ours = kernels.matrix(weight, None)(x)
    for _ in range(3):
        assert torch.nn.functional.linear(x, weight).equal(expected)
        assert kernels.matrix(weight, None)(x).equal(ours)


@NEEDS_COMPILER
def test_matrices_that_there_are_no_products_with():
    float32, bfloat16 = (kernels_for(torch.zeros(1, dtype=dtype), 64) for dtype in DTYPES)
    assert float32.can_multiply(torch.zeros(3, 5)) == bool(float32.panel)
    assert not float32.can_multiply(torch.zeros(3, 5).bfloat16())
    assert bfloat16.can_multiply(torch.zeros(3, 64).bfloat16()) == bool(bfloat16.panel)
    assert not bfloat16.can_multiply(torch.zeros(3, 48).bfloat16())


# Flags that leave a processor without instructions it has, these, those that remain, and the panels
# of both types.
OLDER = {
    "AVX-512": (("-mno-avx512bf16",), b"avx512_bf16", b"avx512f", (48, 32)),
    "AVX2": (("-mno-avx512f",), b"avx512f", b"avx2", (24, 16)),
    "before AVX2": (("-mno-avx2",), b"avx2", b"avx2", (0, 0)),
}


@NEEDS_COMPILER
@pytest.mark.parametrize(("flags", "lost", "remains", "panels"), OLDER.values(), ids=OLDER)
def test_kernels_of_older_processors(flags, lost, remains, panels, request, monkeypatch):
    processor = cpu_kernels._processor().split()
    if remains not in processor:
        pytest.skip(f"a processor without {remains.decode()}")
    # One that never had them compiles to the same kernels.
    if lost in processor:
        monkeypatch.setattr(cpu_kernels, "FLAGS", (*cpu_kernels.FLAGS, "-mno-amx-tile", *flags))
        library = request.getfixturevalue("load")()
        monkeypatch.setattr(cpu_kernels, "_library", lambda: library)
    generator = torch.Generator().manual_seed(0)
    for dtype, panel in zip(DTYPES, panels, strict=True):

        def random(*shape, dtype=dtype):
            return torch.randn(shape, generator=generator).to(dtype)

        old = kernels_for(random(1), 64)
        assert old.panel == panel
        weight, bias, x = random(150, 64), random(150), random(7, 64)
        if panel:
            expected = x.double() @ weight.double().T + bias.double()
            assert_close(old.matrix(weight, bias)(x), expected)
        else:
            assert not old.can_multiply(weight)
        # Steps of three rows, and a text.
        row, lengths = torch.tensor([0, 1, 2, *[0] * 9]), torch.tensor([5, 9, 1, *range(3, 12)])
        for size in (64, 128):
            query = random(12, 6, size) / 8
            cached = random(3, 2, 20, size), random(3, 2, 20, size)
            expected = attention(query, cached, row, lengths)
            assert_close(old.attended(query, cached, row, lengths), expected)
        logits, noise = random(9, 1000), np.linspace(0, 0.9, 9)
        draws = draws_of([Sampling(), Sampling(top_k=50), Sampling(top_p=0.5)] * 3)
        drawn, expected = (choose(logits, draws, noise, each) for each in (old, None))
        assert drawn.ids.equal(expected.ids)
        np.testing.assert_equal(drawn.masks, expected.masks)


@NEEDS_COMPILER
def test_what_is_not_a_number_stays_so(kernels, random):
    hidden, weight = random(2, 64), random(64)
    hidden[1, 3] = torch.nan
    normed = kernels.added_norm(hidden, None, weight, 0.1)[1]
    assert normed[0].isfinite().all()
    assert normed[1].isnan().all()
    assert kernels.gated(hidden, hidden).isnan().nonzero().tolist() == [[1, 3]]
    cached = random(1, 1, 4, 64), random(1, 1, 4, 64)
    cached[0][0, 0, 2, 5] = torch.nan
    rows, lengths = torch.zeros(2, dtype=torch.int64), torch.tensor([2, 3])
    found = kernels.attended(random(2, 1, 64), cached, rows, lengths)
    assert found[0].isfinite().all()
    assert found[1].isnan().all()
    many = kernels.attended(
        random(4, 1, 64), cached, rows[0].expand(4).clone(), torch.arange(4) + 1
    )
    assert many[:2].isfinite().all()
    assert many[2:].isnan().all()


@NEEDS_COMPILER
def test_products_keep_what_is_not_a_number_in_its_row(kernels, random):
    needs_products(kernels)
    x = random(2, 64)
    x[1, 3] = torch.nan
    found = kernels.matrix(random(40, 64), None)(x)
    assert found[0].isfinite().all()
    assert found[1].isnan().all()


@NEEDS_COMPILER
def test_other_types_and_layouts_are_converted(kernels, random):
    hidden, weight = random(70, 6), random(6)
    other = torch.float32 if kernels.dtype is torch.bfloat16 else torch.float64
    expected = kernels.added_norm(hidden.clone(), None, weight, 0.1)[1]
    across = hidden.T.contiguous().T.to(other)
    assert kernels.added_norm(across, None, weight.to(other), 0.1)[1].equal(expected)


@NEEDS_COMPILER
def test_no_number_of_threads_changes_a_bit(kernels, random):
    hidden, weight = random(ONE_THREAD // 10, 70), random(70)
    threads = torch.get_num_threads()
    found = []
    for number in (1, 2):
        torch.set_num_threads(number)
        found.append(kernels.added_norm(hidden.clone(), hidden, weight, 0.1)[1])
    torch.set_num_threads(threads)
    assert found[0].equal(found[1])


@pytest.mark.parametrize(
    ("like", "head_size"),
    [(torch.zeros(1).half(), 64), (torch.zeros(1, device="meta"), 64), (torch.zeros(1), 520)],
    ids=["float16", "another device", "large heads"],
)
def test_other_models_have_none(like, head_size):
    assert kernels_for(like, head_size) is None

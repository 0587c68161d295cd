"""The compiled kernels against the library, and what happens where they cannot be had."""

import copy
import os
import tempfile
import warnings

import pytest
import torch
from tolerance import close, no_worse, rounding
from torch import nn
from torch.nn import functional as F

from seqlab.decoding import compiled, packing
from seqlab.decoding.compiled import (
    CompiledBlock,
    CompiledCrossAttention,
    CompiledLinear,
    best_outputs,
    steady_product,
)
from seqlab.decoding.generate import generate
from seqlab.decoding.packing import LibraryLinear, packed
from seqlab.decoding.ranking import best, by_library
from seqlab.errors import Caution
from seqlab.models.gpt import GPT
from seqlab.native import compiler as compiler_module
from seqlab.nn.attention import CrossAttention, SelfAttention, Source
from seqlab.nn.blocks import Block, FeedForward
from seqlab.nn.cells import GRU, LSTM, Cell
from seqlab.nn.normalisers import entmax
from seqlab.nn.norms import norm_of
from seqlab.nn.recording import record
from seqlab.nn.recurrent import Arrangement, Recurrent
from seqlab.recipe import part_settings
from seqlab.recipe_tree import RecipeTree

needs_kernels = pytest.mark.skipif(compiled.library() is None, reason="there is no C++ compiler with OpenMP here")

SHAPES = [(1, 1), (7, 5), (16, 16), (100, 77), (64, 200), (130, 1001)]


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@needs_kernels
@pytest.mark.parametrize(("inputs", "outputs"), [*SHAPES, (9, 2500)])
@pytest.mark.parametrize("rows", [1, 3, 13, 40])
def test_the_best_outputs_are_those_of_all_outputs(inputs, outputs, rows):
    """To the bit, wherever pieces and panels end."""
    linear, x = CompiledLinear(random(outputs, inputs), random(outputs)), random(rows, inputs)
    count = min(7, outputs)
    for found, expected in zip(best_outputs(linear, x, count), best(linear(x), count), strict=True):
        assert torch.equal(found, expected)


@needs_kernels
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 12, 13, 31, 40])
def test_linear_equals_the_library(inputs, outputs, rows):
    weight, bias, x = random(outputs, inputs) / inputs**0.5, random(outputs), random(rows, inputs)
    linear = CompiledLinear(weight, bias)
    near = {"steps": inputs + 8, "size": 5}  # sums of so many numbers, which together are below 5
    close(linear(x), F.linear(x, weight, bias), **near)
    close(linear(x, activation="gelu"), F.gelu(F.linear(x, weight, bias), approximate="tanh"), **near)
    close(CompiledLinear(weight, None)(x[None]), F.linear(x, weight)[None], **near)


@needs_kernels
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_a_row_depends_neither_on_other_rows_nor_on_threads(inputs, outputs):
    linear, x = CompiledLinear(random(outputs, inputs), random(outputs)), random(40, inputs)
    whole = linear(x, activation="gelu")
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for rows in range(1, 40):
            assert torch.equal(linear(x[:rows], activation="gelu"), whole[:rows])
            assert torch.equal(linear(x[-rows:], activation="gelu"), whole[-rows:])


@needs_kernels
def test_gelu_everywhere():
    identity = CompiledLinear(torch.ones(1, 1), None)
    x = torch.cat([torch.linspace(-100, 100, 4001), torch.linspace(-6, 6, 4001), torch.tensor([0.0, 1e-30, 1e4])])
    expected = F.gelu(x.double(), approximate="tanh").float()
    near = {"atol": rounding(8), "rtol": rounding(8)}  # of numbers below 1, and in proportion above
    torch.testing.assert_close(identity(x[:, None], activation="gelu")[:, 0], expected, **near)


BLOCKS = {
    "rotary": {"position": "rotary"},
    "half of each head rotary": {"position": {"kind": "rotary", "share": 0.5, "base": 100.0}},
    "alibi": {"position": "alibi"},
    "buckets": {"position": "buckets"},
    "RMS norms": {"norm": "rms", "epsilon": 1e-3},
    "RMS norms after": {"norm": "rms", "norm_first": False},
    "grouped heads": {"heads": 6, "key_heads": 2},
    "all heads in one group": {"heads": 6, "key_heads": 1},
    "wide heads": {"heads": 6, "head_width": 10},
    "gated": {"gated": True, "hidden_width": 37},
    "no biases": {"bias": False},
    "Llama": {"position": "rotary", "norm": "rms", "heads": 6, "key_heads": 2, "gated": True, "bias": False},
}
"""What blocks can be made of, beside GPT-2's."""


@needs_kernels
@pytest.mark.parametrize("parts", BLOCKS.values(), ids=BLOCKS)
def test_single_positions_of_other_blocks(parts):
    agrees({"width": 48, "heads": 4, **parts})


@needs_kernels
@pytest.mark.parametrize(("width", "heads"), [(24, 3), (64, 2), (100, 2), (36, 1), (160, 1)])
def test_single_positions_equal_the_unpacked_model(width, heads):
    agrees({"width": width, "heads": heads})


def agrees(shape):
    """The block's own kernel, for rows of different lengths, against the parts of torch."""
    torch.manual_seed(0)
    plain = GPT(part_settings("model", RecipeTree({"kind": "gpt", "depth": 2, "context": 80, **shape})), 50).eval()
    with torch.no_grad():
        for weight in plain.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    twin = packed(plain)
    assert all(type(block) is CompiledBlock for block in twin.blocks)
    tokens = torch.randint(50, (5, 40))
    mask = torch.arange(40) < torch.tensor([40, 1, 17, 33, 8])[:, None]
    with torch.inference_mode():
        models = (twin, plain, copy.deepcopy(plain).double())
        states = [model(tokens, model.start(rows=5), mask).state for model in models]
        for column in torch.randint(50, (30, 5)):
            each = [model.step(column, state) for model, state in zip(models, states, strict=True)]
            no_worse(*(logits for logits, _ in each))
            states = [state for _, state in each]


@needs_kernels
@pytest.mark.parametrize(("width", "heads", "key_heads"), [(24, 3, 3), (64, 2, 1), (36, 1, 1), (128, 1, 1)])
@pytest.mark.parametrize("places", [("weights",), ("weights", "heads", "output")])
def test_attention_to_sources_equals_the_library_and_shows_its_weights(width, heads, key_heads, places):
    """Rows of several lengths, in any order and number for a source."""
    torch.manual_seed(0)
    plain = CrossAttention(width, heads, key_heads=key_heads, source_width=20).eval()
    twin = packed(nn.ModuleDict({"cross_attend": plain}))["cross_attend"]
    assert type(twin) is CompiledCrossAttention
    owner, real = torch.tensor([1, 0, 2, 1]), torch.arange(19) < torch.tensor([19, 1, 7])[:, None]
    states, x = torch.randn(3, 19, 20), torch.randn(4, 2, width)
    with torch.inference_mode():
        found = []
        for cross_attend, dtype in (
            (twin, torch.float32),
            (plain, torch.float32),
            (copy.deepcopy(plain).double(), torch.double),
        ):
            keys, values = (one.contiguous() for one in cross_attend.read(states.to(dtype)))
            source = Source(keys, values, real, owner)
            unseen = cross_attend(x.to(dtype), source)
            with record(cross_attend, *(("", name) for name in places)) as tape:
                assert torch.equal(cross_attend(x.to(dtype), source), unseen)
            found.append([unseen, *(tape[""][name][0] for name in places)])
    for each in zip(*found, strict=True):
        no_worse(*each)


UNKNOWN = {
    "another normaliser": lambda block: Block(SelfAttention(24, 3, normalise=entmax), block.feed, nn.Identity),
    "another scale": lambda block: Block(SelfAttention(24, 3, scale=1.0), block.feed, norm_of("layer", 24)),
    "looks ahead": lambda block: Block(SelfAttention(24, 3, causal=False), block.feed, norm_of("layer", 24)),
    "another norm": lambda block: Block(block.attend, block.feed, nn.Identity),
    "no weights": lambda block: Block(block.attend, block.feed, lambda: nn.LayerNorm(24, elementwise_affine=False)),
    "an epsilon of the library's": lambda block: Block(block.attend, block.feed, lambda: nn.RMSNorm(24)),
    "another attention": lambda block: Block(OwnAttention(24, 3), block.feed, norm_of("layer", 24)),
    "an argument more": lambda block: Block(block.attend, OwnFeed(24, 40, sparse=True), norm_of("layer", 24)),
    "another block": lambda block: OwnBlock(block.attend, block.feed, norm_of("layer", 24)),
}


class OwnAttention(SelfAttention):
    pass


class OwnFeed(FeedForward):
    def __init__(self, input_width, width, sparse):
        super().__init__(input_width, width)


class OwnBlock(Block):
    pass


@pytest.mark.parametrize("made", UNKNOWN.values(), ids=UNKNOWN)
def test_what_the_kernel_does_not_know_is_left_to_the_block(made):
    known = Block(SelfAttention(24, 3), FeedForward(24, 40), norm_of("layer", 24))
    assert CompiledBlock.computes(known)
    block = made(known)
    assert not CompiledBlock.computes(block)
    assert type(packed(nn.Sequential(block))[0]) is type(block)


def test_an_argument_that_is_new_to_the_kernel_is_not_ignored(monkeypatch):
    """As if a part were given another argument one day, and the kernel forgotten."""
    block = Block(SelfAttention(24, 3), FeedForward(24, 40), norm_of("layer", 24))
    for part in (block, block.attend, block.feed):
        with monkeypatch.context() as patch:
            patch.setitem(part.made_with, "sharpness", 2.0)
            assert not CompiledBlock.computes(block)
    assert CompiledBlock.computes(block)


def texts(model, prompts):
    steps = [[(token.id, token.log_probability) for token in step] for step in generate(model, prompts, tokens=12)]
    return list(zip(*steps, strict=True))


def test_without_kernels_the_library_packs(monkeypatch):
    """And neighbours do not matter there either."""
    monkeypatch.setattr(packing, "library", lambda: None)
    torch.manual_seed(0)
    model = packed(GPT(GPT.Settings(kind="gpt", width=36, depth=2, heads=3, context=64), 50).eval())
    assert any(isinstance(part, LibraryLinear) for part in model.modules())
    assert not any(isinstance(part, CompiledLinear | CompiledBlock) for part in model.modules())
    prompts = [[number % 50 for number in range(length)] for length in (1, 5, 16, 33, 40)]
    alone = [texts(model, [prompt])[0] for prompt in prompts]
    assert texts(model, prompts) == alone
    assert texts(model, prompts[:3]) == alone[:3]


@pytest.mark.parametrize("compiler", ["/no/such/compiler", "false"])
def test_a_compiler_that_fails_is_no_compiler(monkeypatch, tmp_path, compiler):
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path))
    compiler_module.compiled.cache_clear()
    compiler_module._slow.cache_clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert compiled.library.__wrapped__() is None
    assert not list(tmp_path.rglob("*.so"))
    wanted = compiler == "false"  # whoever names no compiler at all knows that there is none
    assert [str(one.message) for one in said if "slower; install g++" in str(one.message)] or wanted
    assert len(said) == (0 if wanted else 1)


def test_without_a_compiler_a_person_is_told_what_it_costs(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    compiler_module.compiled.cache_clear()
    compiler_module._slow.cache_clear()
    with pytest.warns(Caution, match="there is no C\\+\\+ compiler here: .* slower; install g"):
        assert compiled.library.__wrapped__() is None
    compiler_module.compiled.cache_clear()


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A cache that cannot be written, and a temporary folder that nothing is known of yet."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path / "file"))
    remembered = (compiler_module.compiled, compiler_module.temporary_folder)
    for function in remembered:
        function.cache_clear()
    yield tmp_path
    for function in remembered:
        function.cache_clear()


def test_where_nothing_can_be_written_there_is_no_compiler_either(nowhere, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(nowhere / "file"))
    assert compiled.library.__wrapped__() is None


@needs_kernels
def test_a_cache_that_cannot_be_written_is_replaced_by_a_temporary_folder(nowhere, monkeypatch):
    (nowhere / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(nowhere / "tmp"))
    compiler_module._elsewhere.cache_clear()
    with pytest.warns(Caution, match="cannot keep compiled kernels in .*file"):
        assert compiled.library.__wrapped__() is not None
    assert list((nowhere / "tmp").glob("seqlab-*/compiled/*.so"))


@needs_kernels
def test_a_generous_umask_does_not_matter(monkeypatch, tmp_path):
    """A file that others can write is never loaded, so ours is not made such a file."""
    monkeypatch.setenv("SEQLAB_CACHE", str(tmp_path))
    compiler_module.compiled.cache_clear()
    before = os.umask(0o002)
    try:
        assert compiled.library.__wrapped__() is not None
    finally:
        os.umask(before)


class Gated(Cell):
    """A cell of a person's own, which knows nothing of `Cell.sigmoid`."""

    def step(self, inputs, state):
        (h,) = state
        z = torch.sigmoid(inputs + self.recurrent(h))
        return (z * h + (1 - z).sigmoid(),)


class WithAPart(Cell):
    """Another one, whose sigmoid is a part of its own."""

    def __init__(self, input_width, width):
        super().__init__(input_width, width)
        self.sigmoid = torch.nn.Sigmoid()

    def step(self, inputs, state):
        (h,) = state
        return (self.sigmoid(inputs + self.recurrent(h)),)


@needs_kernels
@pytest.mark.parametrize("cell", [Gated, WithAPart, LSTM, GRU])
def test_sigmoids_of_any_cell_do_not_depend_on_the_rows(cell):
    """Seven numbers a row: which of them are the last few of a tensor depends on how many rows there are."""
    torch.manual_seed(0)
    model = packed(Recurrent([cell(5, 7)]))
    _rows_are_alone(model)
    assert ("step" in vars(model.layers[0])) == (cell in (Gated, WithAPart))  # only what calls torch.sigmoid is watched


@needs_kernels
def test_highway_gates_do_not_depend_on_the_rows():
    torch.manual_seed(0)
    _rows_are_alone(packed(Recurrent([LSTM(5, 7), LSTM(7, 7)], arrangement=Arrangement(connections="highway"))))


def _rows_are_alone(model):
    x = torch.randn(9, 6, 5)
    with torch.inference_mode():
        whole, _ = model(x, model.start(9, x))
        for row in range(9):
            alone, _ = model(x[row : row + 1], model.start(1, x))
            assert torch.equal(alone[0], whole[row])


@needs_kernels
@pytest.mark.parametrize("vocabulary", [1, 7, 128, 4096, 4099, 9000])
@pytest.mark.parametrize("rows", [1, 5])
def test_the_best_tokens_equal_the_library(rows, vocabulary):
    plain = random(rows, vocabulary) * 5
    tied = plain.round()
    few = plain.masked_fill(torch.arange(vocabulary) % 100 != 0, -torch.inf)
    for logits in (plain, tied, few, plain - 1e4):
        for count in {1, min(6, vocabulary), min(20, vocabulary)}:
            values, ids, totals = best(logits, count)
            expected = by_library(logits, count)
            real = values > -torch.inf
            assert torch.equal(values, expected[0])
            assert torch.equal(ids[real], expected[1][real])
            close(totals, expected[2], steps=8)


@needs_kernels
def test_the_best_tokens_of_a_row_depend_on_nothing_else():
    logits = random(9, 9000)
    whole = best(logits, 6)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        for row in range(9):
            alone = best(logits[row : row + 1], 6)
            assert all(torch.equal(one[0], every[row]) for one, every in zip(alone, whole, strict=True))


@needs_kernels
@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
@pytest.mark.parametrize("place", [0, 5000, 8999])
def test_where_there_is_no_distribution_the_total_says_so(odd, place):
    logits = random(2, 9000)
    logits[1, place] = odd
    assert best(logits, 3)[2].isfinite().tolist() == [True, False]
    assert not best(torch.full((1, 5000), -torch.inf), 2)[2].isfinite()
    logits[1] = -torch.inf
    logits[1, place] = odd
    assert not best(logits, 3)[2][1].isfinite()


@needs_kernels
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 5, 16, 32), (2, 7, 33, 13)])
def test_products_that_depend_on_no_neighbour(shape):
    sources, rows, inner, columns = shape
    a, b = random(sources, rows, inner), random(sources, inner, columns)
    for other in (b, b.mT.contiguous().mT):
        whole = steady_product(a, other)
        close(whole, a @ b, steps=inner, size=10)
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            assert torch.equal(steady_product(a[-1:, :1], other[-1:]), whole[-1:, :1])
    view = torch.stack([b, b], 2).flatten(2)[..., :columns]  # not contiguous, but not transposed either
    assert torch.equal(steady_product(a, view), steady_product(a, b))
    longer = steady_product(F.pad(a, [0, 16]), F.pad(b, [0, 0, 0, 16]))
    assert torch.equal(longer, steady_product(a, b))

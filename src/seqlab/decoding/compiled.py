"""Linear maps, blocks and the choice of tokens in `kernels.cpp`, compiled for this machine when first needed.

Hand-written, because the library is slower for few rows. Between the maps it needs some fifteen calls per block, which
take longer than on their own, since the weights streaming through evict everything else from the caches; and its maps
take 2.9 ms where these take 2.2 (one row, 92 MB of weights, two threads), and 5.5 where these take 3.8 (16 rows).
Without a compiler or without OpenMP, the library is used.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab.native.compiler import compiled
from seqlab.native.linear import Map
from seqlab.nn.attention import Cache, CrossAttention, PagedCache, Places, SelfAttention, Source
from seqlab.nn.blocks import Block, FeedForward, GatedFeedForward
from seqlab.nn.normalisers import softmax
from seqlab.nn.part import Part
from seqlab.nn.recording import changed, note, observed, recorded

SOURCE = Path(__file__).with_name("kernels.cpp")
ACTIVATIONS = {"none": 0, "gelu": 1, "relu": 2, "swish": 3}
"""The numbers of activations in `linear.h`."""


class CompiledLinear(nn.Module):
    """g(W x + b), where g is the identity by default"""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        kernels = library()
        assert kernels is not None
        self.outputs, self.inputs = weight.shape
        weight = F.pad(weight.detach(), [0, 0, 0, -self.outputs % kernels.lanes()])
        self.panels = weight.view(-1, kernels.lanes(), self.inputs).transpose(1, 2).contiguous()
        self.bias = weight.new_zeros(len(weight))
        if bias is not None:
            self.bias[: self.outputs] = bias.detach()
        self.kernel = kernels.linear
        self.map = Map(self.panels.data_ptr(), self.bias.data_ptr(), self.inputs, self.outputs)

    def forward(self, x: Tensor, activation: str = "none") -> Tensor:
        assert x.shape[-1] == self.inputs
        assert x.dtype == torch.float32
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], self.outputs)
        rows = x.numel() // self.inputs
        number, threads = ACTIVATIONS[activation], torch.get_num_threads()
        _succeed(self.kernel(self.map, x.data_ptr(), y.data_ptr(), rows, number, threads))
        return y


class CompiledCrossAttention(CrossAttention):
    """Cross-attention in decoding, in one call; each position is computed as if it were alone."""

    def __init__(self, cross_attend: CrossAttention) -> None:
        nn.Module.__init__(self)
        kernels = library()
        assert kernels is not None
        self.kernel = kernels.attend_to_source
        self.heads, self.key_heads, self.head_width = _grouping(cross_attend)
        for name, part in cross_attend.named_children():
            self.add_module(name, part)

    @staticmethod
    def computes(cross_attend: CrossAttention) -> bool:
        """Whether the kernel can compute this attention."""
        return _known(cross_attend, CrossAttention, ATTENTION | {"source_width"})

    def forward(self, x: Tensor, source: Source) -> Tensor:
        if source.owner is None or changed(self):
            return super().forward(x, source)
        (rows, time), q = x.shape[:2], self.query(x)
        packed_source, found = _source(source, rows), torch.empty_like(q)
        shown = _shown(self, packed_source, source, rows, time)
        pointers, threads = (q.data_ptr(), found.data_ptr()), torch.get_num_threads()
        _succeed(self.kernel(packed_source, *pointers, rows * time, time, *_grouping(self), threads))
        if shown is not None:
            note(self, "weights", shown)
            note(self, "heads", found.view(rows, time, self.heads, -1).transpose(1, 2))
        return note(self, "output", self.output(found))


class CompiledBlock(Block):
    """A block that reads new positions, after those in its pages, in one call; without pages, part by part.

    Each position is computed as if it were alone: its bits depend on earlier positions only, not on how many are read
    at a time.
    """

    def __init__(self, block: Block) -> None:
        nn.Module.__init__(self)
        kernels = library()
        assert kernels is not None
        self.kernel, self.norm_first = kernels.block, block.norm_first
        for name, part in block.named_children():  # under the same names as in the block
            self.add_module(name, part)
        cross_attend: CrossAttention | None = getattr(block, "cross_attend", None)
        watches = (
            {}
            if cross_attend is None
            else {
                "norm_cross_attend": _norm(block.norm_cross_attend),
                "query": _map(cross_attend.query),
                "cross_attend_output": _map(cross_attend.output),
            }
        )
        gate = getattr(block.feed, "gate", None)
        self.parts = _Block(
            norm_attend=_norm(block.norm_attend),
            query_key_value=_map(block.attend.query_key_value),
            output=_map(block.attend.output),
            norm_feed=_norm(block.norm_feed),
            expand=_map(block.feed.expand),
            contract=_map(block.feed.contract),
            heads=block.attend.heads,
            groups=block.attend.key_heads,
            head_width=block.attend.head_width,
            activation=ACTIVATIONS[block.feed.activation],
            norm_first=block.norm_first,
            **({} if gate is None else {"gate": _map(gate)}),
            **watches,
        )

    @staticmethod
    def computes(block: Block) -> bool:
        """Whether the kernel can compute a block: it must know all parts and all of their arguments. Anything else is
        left to the block itself."""
        attend, feed, cross_attend = block.attend, block.feed, getattr(block, "cross_attend", None)
        norms = [part for name, part in block.named_children() if name.startswith("norm")]
        return (
            _known(block, Block, {"norm", "dropout", "cross_attend", "norm_first"})
            and _known(attend, SelfAttention, ATTENTION | {"causal"}, causal=True)
            and (cross_attend is None or CompiledCrossAttention.computes(cross_attend))
            and (cross_attend is None or _grouping(cross_attend) == _grouping(attend))
            and any(_known(feed, kind, FEED) for kind in (FeedForward, GatedFeedForward))
            and feed.activation in ACTIVATIONS
            and all(type(one) in (nn.LayerNorm, nn.RMSNorm) for one in norms)
            and all(one.weight is not None and one.eps is not None for one in norms)
        )

    reads_pages = True

    def compute(
        self, x: Tensor, cache: Cache | None, mask: Tensor | None, source: Source | None, places: Places | None
    ) -> Tensor:
        if not isinstance(cache, PagedCache) or (observed() and any(map(changed, self.children()))):
            return super().compute(x, cache, mask, source, places)
        beside = observed() and self._recorded()
        if beside:  # before the kernel, which then overwrites these keys and values with its own
            super().compute(x, cache, mask, source, places)
        (rows, time), pages, positions = x.shape[:2], cache.pages, cache.places.positions
        x, cells = x.contiguous(), pages.cells
        assert positions.shape == (rows, time)
        assert len(cells) == len(cache.ends) == rows
        assert all(tensor.is_contiguous() for tensor in (positions, cells, cache.ends))
        where = _Cache(
            pages=pages.addresses.data_ptr(),
            cells=cells.data_ptr(),
            positions=positions.data_ptr(),
            ends=cache.ends.data_ptr(),
            capacity=cells.shape[1],
            time=time,
            layer=cache.layer,
        )
        if cache.places.rotation is not None:
            cos, sin = cache.places.rotation
            assert cos.is_contiguous()
            assert sin.is_contiguous()
            where.cos, where.sin, where.turned = cos.data_ptr(), sin.data_ptr(), cos.shape[-1]
        if (bias := cache.places.bias) is not None:
            bias = bias.contiguous()
            assert bias.shape == (rows, self.attend.heads, time, cache.places.length)
            where.bias, where.length = bias.data_ptr(), cache.places.length
        packed_source = None if source is None else _source(source, rows)
        shown = (
            None
            if packed_source is None or source is None or beside
            else _shown(self.cross_attend, packed_source, source, rows, time)
        )
        y = torch.empty_like(x)
        threads = torch.get_num_threads()
        _succeed(self.kernel(self.parts, where, packed_source, x.data_ptr(), y.data_ptr(), rows * time, threads))
        if shown is not None:
            note(self.cross_attend, "weights", shown)
        return y

    def _recorded(self) -> bool:
        """Whether more is recorded than the kernel can show, which is the attention to the source."""
        cross_attend: CrossAttention | None = getattr(self, "cross_attend", None)
        rest = any(recorded(part) for part in self.children() if part is not cross_attend)
        return rest or (cross_attend is not None and any(recorded(cross_attend, name) for name in ("heads", "output")))


def best_outputs(linear: CompiledLinear, x: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """`ranking.best` of a map's outputs, which are never stored."""
    kernels = library()
    assert kernels is not None
    assert x.shape[1] == linear.inputs
    x = x.contiguous()
    rows = len(x)
    values, tokens = x.new_empty(rows, count), torch.empty(rows, count, dtype=torch.long)
    totals = x.new_empty(rows)
    pointers = [tensor.data_ptr() for tensor in (x, values, tokens, totals)]
    _succeed(kernels.best_outputs(linear.map, *pointers, rows, count, torch.get_num_threads()))
    return values, tokens, totals


def best(logits: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """`ranking.best` in one pass."""
    kernels = library()
    assert kernels is not None
    assert logits.is_contiguous()
    rows, vocabulary = logits.shape
    values, tokens = logits.new_empty(rows, count), torch.empty(rows, count, dtype=torch.long)
    totals = logits.new_empty(rows)
    pointers = [tensor.data_ptr() for tensor in (logits, values, tokens, totals)]
    _succeed(kernels.best(*pointers, rows, vocabulary, count, torch.get_num_threads()))
    return values, tokens, totals


def steady_product(a: Tensor, b: Tensor) -> Tensor:
    """A B, (..., T, K), (..., K, N) → (..., T, N): each number depends only on its row of A and its column of B.

    The order of summation depends on whether B is transposed. This is decided by B's last stride alone, so that a view
    of a larger tensor gives the same bits as its copy.
    """
    kernels = library()
    assert kernels is not None
    transposed = b.stride(-1) != 1
    a, b = a.contiguous(), (b.mT if transposed else b).contiguous()
    rows, inner, columns = *a.shape[-2:], b.shape[-2 if transposed else -1]
    c = a.new_empty(*a.shape[:-1], columns)
    pointers = [tensor.data_ptr() for tensor in (a, b, c)]
    kernels.product(*pointers, a.shape[:-2].numel(), rows, inner, columns, transposed, torch.get_num_threads())
    return c


@cache
def library() -> ctypes.CDLL | None:
    """`kernels.cpp` compiled for this machine; None if it cannot be compiled."""
    kernels = compiled(SOURCE.read_text(encoding="utf-8"))
    if kernels is None:
        return None
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    kernels.linear.argtypes = [ctypes.POINTER(Map), pointer, pointer, count, ctypes.c_int, ctypes.c_int]
    kernels.product.argtypes = [pointer] * 3 + [count] * 4 + [ctypes.c_int] * 2
    kernels.product.restype = None
    kernels.best.argtypes = [pointer] * 4 + [count] * 3 + [ctypes.c_int]
    kernels.best_outputs.argtypes = [ctypes.POINTER(Map), *[pointer] * 4, count, count, ctypes.c_int]
    kernels.attend_to_source.argtypes = [ctypes.POINTER(_Source), pointer, pointer, *[count] * 5, ctypes.c_int]
    kernels.block.argtypes = [
        ctypes.POINTER(_Block),
        ctypes.POINTER(_Cache),
        ctypes.POINTER(_Source),
        pointer,
        pointer,
        count,
        ctypes.c_int,
    ]
    return kernels


def _succeed(failed: int) -> None:
    if failed:
        raise MemoryError("decoding")


# ---------------------------------------------------------------------- the structures of kernels.cpp


class _Norm(ctypes.Structure):
    _fields_ = (
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("epsilon", ctypes.c_float),
        ("centred", ctypes.c_int),
    )


class _Block(ctypes.Structure):
    _fields_ = (
        ("norm_attend", _Norm),
        ("query_key_value", Map),
        ("output", Map),
        ("norm_cross_attend", _Norm),
        ("query", Map),
        ("cross_attend_output", Map),
        ("norm_feed", _Norm),
        ("gate", Map),
        ("expand", Map),
        ("contract", Map),
        ("heads", ctypes.c_int64),
        ("groups", ctypes.c_int64),
        ("head_width", ctypes.c_int64),
        ("activation", ctypes.c_int64),
        ("norm_first", ctypes.c_int64),
    )


class _Cache(ctypes.Structure):
    _fields_ = (
        ("pages", ctypes.c_void_p),
        ("cells", ctypes.c_void_p),
        ("positions", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("time", ctypes.c_int64),
        ("layer", ctypes.c_int64),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("turned", ctypes.c_int64),
        ("length", ctypes.c_int64),
    )


class _Source(ctypes.Structure):
    _fields_ = (
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
        ("owner", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("shown", ctypes.c_void_p),
    )


def _source(source: Source, rows: int) -> _Source:
    """Pack pointers to tensors of a State, which outlives the call."""
    keys, values, lengths, owner = source.keys, source.values, source.lengths, source.owner
    assert owner is not None
    assert len(owner) == rows
    assert all(tensor.is_contiguous() for tensor in (keys, values, lengths, owner))
    pointers = (keys.data_ptr(), values.data_ptr(), lengths.data_ptr(), owner.data_ptr())
    return _Source(*pointers, keys.shape[2])


def _shown(cross_attend: CrossAttention, packed_source: _Source, source: Source, rows: int, time: int) -> Tensor | None:
    """Allocate room for cross-attention weights (B, H, T, N) if they are recorded."""
    if not recorded(cross_attend):
        return None
    shown = source.keys.new_zeros(rows, cross_attend.heads, time, source.keys.shape[2])
    packed_source.shown = shown.data_ptr()
    return shown


def _map(linear: nn.Module) -> Map:
    assert isinstance(linear, CompiledLinear)
    return linear.map


def _norm(norm: nn.Module) -> _Norm:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    assert norm.eps is not None
    bias = getattr(norm, "bias", None)
    centred = isinstance(norm, nn.LayerNorm)
    return _Norm(norm.weight.data_ptr(), None if bias is None else bias.data_ptr(), norm.eps, centred)


# ---------------------------------------------------------------------- what the block kernel supports

ATTENTION = {"width", "heads", "dropout", "key_heads", "head_width", "bias", "scale", "normalise"}
FEED = {"width", "hidden_width", "activation", "bias"}


def _known(part: Part, kind: type[Part], arguments: set[str], **fixed: object) -> bool:
    """Whether a part is exactly of this class, has no other arguments than these, and has the `fixed` values.

    Scores must have the default scale and be normalised by softmax.
    """
    if type(part) is not kind or not set(part.made_with) <= arguments:
        return False
    usual = {"scale": None, "normalise": softmax}
    wanted = {name: value for name, value in usual.items() if name in arguments} | fixed
    return all(part.made_with[name] is value for name, value in wanted.items())


def _grouping(part: SelfAttention | CrossAttention) -> tuple[int, int, int]:
    return part.heads, part.key_heads, part.head_width

"""What the libraries compute on this processor, under these settings: a fingerprint of some hundred results of each.

OMP_NUM_THREADS=1 python tests/fingerprints.py
"""

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional as F

from seqlab.decoding import compiled, packing
from seqlab.recipe import part_settings
from seqlab.recipe_tree import RecipeTree
from seqlab.registry import find

DRAW = torch.Generator().manual_seed(0)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=DRAW, dtype=torch.float64).to(dtype)


def fingerprint(results: Iterable[Tensor]) -> str:
    digest = hashlib.sha256()
    for result in results:
        digest.update(result.contiguous().numpy().tobytes())
    return digest.hexdigest()[:4]


def main() -> None:
    types = (torch.float32, torch.float64)
    sizes = [(n, m, k) for n in (1, 2, 7, 16, 97) for m in (5, 64, 211) for k in (3, 48, 130)]
    pairs = [(random(n, m, dtype=dtype), random(k, m, dtype=dtype)) for dtype in types for n, m, k in sizes]
    maps = [(a, b) for a, b in pairs if a.dtype == torch.float32]
    print(aten([random(*shape, dtype=dtype) for shape in ((97, 211), (3, 5), (1, 64)) for dtype in types]), end=" ")
    print(mkl(pairs), onednn(maps), kernels(maps))


def aten(tensors: list[Tensor]) -> str:
    numbers = [torch.tanh, torch.exp, torch.sigmoid, torch.erf, F.gelu, F.silu, torch.log1p, torch.rsqrt]
    results = [compute(x.abs()) for x in tensors for compute in numbers]
    for x in tensors:
        results += [x.softmax(-1), x.log_softmax(-1), x.sum(-1), x.cumsum(-1), F.layer_norm(x, x.shape[-1:])]
    return fingerprint(results)


def mkl(pairs: list[tuple[Tensor, Tensor]]) -> str:
    results = [a @ b.T for a, b in pairs]
    results += [random(6, n, 33) @ random(6, 33, 17) for n in (1, 4, 20)]
    for time in (1, 5, 33):
        results.append(F.scaled_dot_product_attention(*(random(2, 3, n, 16) for n in (time, 40, 40))))
    return fingerprint(results)


def onednn(maps: list[tuple[Tensor, Tensor]]) -> str:
    packed = [(a, torch.ops.mkldnn._reorder_linear_weight(b)) for a, b in maps]
    apply = torch.ops.mkldnn._linear_pointwise
    return fingerprint(apply(a, b, None, after, [], "") for a, b in packed for after in ("none", "relu"))


def kernels(maps: list[tuple[Tensor, Tensor]]) -> str:
    if compiled.library() is None:
        return "none"
    packed = [(a, compiled.CompiledLinear(b, None)) for a, b in maps]
    results = [apply(a, after) for a, apply in packed for after in ("none", "gelu")]
    for own in ({"kind": "gpt", "width": 36, "context": 40}, {"kind": "recurrent", "cell": "gru", "width": 36}):
        torch.manual_seed(0)
        model = find("model", own["kind"])(part_settings("model", RecipeTree(own)), 300)
        tokens, targets = (torch.randint(300, (3, 20), generator=DRAW) for _ in range(2))
        model.losses(model(tokens).states.flatten(0, 1), targets.flatten()).sum().backward()
        results += [weight.grad for weight in model.parameters() if weight.grad is not None]
        with torch.inference_mode():
            twin = packing.packed(model)
            results.append(twin.logits(twin(tokens, twin.start(rows=3)).states))
    return fingerprint(results)


if __name__ == "__main__":
    main()

"""The subjects of the self-test: every registered cell and language model, small, with weights far from zero.

All numbers are drawn on the CPU from a fixed seed and then moved, so they are the same on every machine.

B rows · T positions · V vocabulary
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqlab import registry
from seqlab.data.batching.batches import Batch
from seqlab.decoding.generate import Token, generate
from seqlab.decoding.packing import packed
from seqlab.models.language_model import LanguageModel
from seqlab.models.sizes import needs, sizes_for
from seqlab.models.translator import Translator
from seqlab.nn.recurrent import Recurrent
from seqlab.objectives.next_token import NextToken
from seqlab.recipe import PartSettings, part_settings
from seqlab.recipe_tree import RecipeTree

M = TypeVar("M", bound=nn.Module)
Values = dict[str, Tensor]
"""The results of a computation by name, on the CPU."""

SEED = 20
VOCAB = 23
LENGTHS = [12, 5, 9]
"""Number of positions of each row that are not padding."""
SOURCE_LENGTHS = [4, 9, 7]
CELL_WIDTH, CELL_HIDDEN = 8, 16

SMALL = {
    "width": 24,
    "depth": 2,
    "heads": 3,
    "hidden_width": 32,
    "context": 64,
    "window": 4,
    "order": 3,
    "dropout": 0.1,
    "attention": "additive",
}
"""Sizes of a small model, for the settings that it has."""

OWN: dict[str, dict[str, Any]] = {
    "mixture": {"parts": [{"kind": "gpt", "width": 24, "depth": 1, "heads": 3}, {"kind": "ngram", "order": 3}]},
    "translator": {
        "encoder": {"kind": "recurrent-encoder", "width": 9, "cell": "gru"},
        "decoder": {"kind": "transformer", "width": 24, "depth": 1, "heads": 3},
    },
}
"""Settings of models that cannot be built from sizes alone."""


def cell_names() -> list[str]:
    return registry.names("cell")


def model_names() -> list[str]:
    """List the models that predict the next token of a vocabulary: language models, then translators."""
    kinds = {name: registry.find("model", name) for name in registry.names("model")}
    known = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, LanguageModel)}
    fit = [name for name, kind in known.items() if set(needs(kind)) <= {"vocab_size"}]
    return sorted(fit, key=lambda name: issubclass(known[name], Translator))


class CellSubject:
    """One layer of a cell over time."""

    family = "cell"

    def __init__(self, name: str) -> None:
        self.name = f"{self.family} {name}"
        kind = registry.find("cell", name)
        self.net = _made(lambda: Recurrent([kind(CELL_WIDTH, CELL_HIDDEN, kind.Settings(kind=name))]))
        self.x = torch.randn(len(LENGTHS), max(LENGTHS), CELL_WIDTH, generator=_generator())
        self.mask = _mask(LENGTHS)

    def exactly(self, net: Recurrent) -> Values:
        """Compute step by step: the mask disables the library's kernel, and `fuse` the compiled loop."""
        net.fuse = False
        return self._values(net, self.x.to(next(net.parameters()).dtype), torch.ones_like(self.mask))

    def compute(self, net: Recurrent) -> Values:
        """Compute as in training."""
        return self._values(net, self.x.to(_device(net)), None)

    def one_by_one(self, net: Recurrent) -> Values:
        """Compute one position at a time, as in decoding."""
        net = packed(net)
        x = self.x.to(_device(net))
        state, outputs = net.start(len(x), x), []
        with torch.no_grad():
            for position in range(x.shape[1]):
                output, state = net(x[:, position : position + 1], state)
                outputs.append(output)
        return {"outputs": torch.cat(outputs, 1).cpu()}

    def alone(self, net: Recurrent) -> Values:
        """Compute each row by itself, with zeros instead of its padding."""
        x, found = self.x.to(_device(net)), []
        with torch.no_grad():
            for row, length in enumerate(LENGTHS):
                output, _ = net(x[row : row + 1, :length], net.start(1, x))
                found.append(F.pad(output, [0, 0, 0, max(LENGTHS) - length]))
        return {"outputs": torch.cat(found).cpu()}

    def together(self, net: Recurrent) -> Values:
        """Compute all rows at once, padded."""
        x, mask = self.x.to(_device(net)), self.mask.to(_device(net))
        with torch.no_grad():
            outputs, _ = net(x, net.start(len(x), x), mask)
        return {"outputs": (outputs * mask[..., None]).cpu()}

    def _values(self, net: Recurrent, x: Tensor, mask: Tensor | None) -> Values:
        x = x.clone().requires_grad_()
        outputs, after = net(x, net.start(len(x), x), None if mask is None else mask.to(x.device))
        states = {f"state {number}": part for number, part in enumerate(after[0])}
        values = {"outputs": outputs, **states}
        net.zero_grad(set_to_none=True)
        torch.stack([(value * _slopes(value)).sum() for value in values.values()]).sum().backward()  # type: ignore[no-untyped-call]
        return _on_cpu({**values, "gradient of x": x.grad, **_gradients(net)})


class ModelSubject:
    """A language model, or a translator with its sources."""

    family = "model"

    def __init__(self, name: str) -> None:
        kind = registry.find("model", name)
        self.name = f"{self.family} {name}"
        self.net: LanguageModel = _made(lambda: _model(name))
        generator = _generator()
        self.tokens = torch.randint(VOCAB, (len(LENGTHS), max(LENGTHS)), generator=generator)
        self.targets = torch.randint(VOCAB, self.tokens.shape, generator=generator)
        self.source: Mapping[str, Tensor] | None = None
        if issubclass(kind, Translator):
            read = torch.randint(VOCAB, (len(SOURCE_LENGTHS), max(SOURCE_LENGTHS)), generator=generator)
            self.source = {"tokens": read, "mask": _mask(SOURCE_LENGTHS)}

    @property
    def learns(self) -> bool:
        """Whether the model has gradients; n-grams count, and mixtures stay fixed."""
        return any(weight.requires_grad for weight in self.net.parameters())

    def batch(self) -> Batch:
        source = {} if self.source is None else {f"source.{name}": one for name, one in self.source.items()}
        return Batch({"tokens": self.tokens, "targets": self.targets, "mask": _mask(LENGTHS), **source})

    def objective(self, net: LanguageModel) -> NextToken:
        return NextToken(NextToken.Settings(kind="next-token"), net)

    def exactly(self, net: LanguageModel) -> Values:
        return self.compute(net)

    def compute(self, net: LanguageModel) -> Values:
        """Compute the log-probabilities at every position, the loss and its gradients."""
        tokens, source = self.tokens.to(_device(net)), self._source(_device(net))
        with torch.no_grad():
            chances = net.logits(net(tokens, None, None, source).states).log_softmax(-1)
        if not self.learns:
            return _on_cpu({"log p": chances})
        loss = self.objective(net)(self.batch().to(_device(net)))
        net.zero_grad(set_to_none=True)
        loss.sum.backward()
        return _on_cpu({"log p": chances, "loss": loss.sum, **_gradients(net)})

    def one_by_one(self, net: LanguageModel) -> Values:
        """Compute one position at a time, as in decoding."""
        net = packed(net)
        tokens = self.tokens.to(_device(net))
        found = []
        with torch.no_grad():
            state = net.start(self._source(_device(net)), rows=len(tokens))
            for column in tokens.unbind(1):
                logits, state = net.step(column, state)
                found.append(logits.log_softmax(-1))
        return _on_cpu({"log p": torch.stack(found, 1)})

    def written(self, net: LanguageModel, rows: Sequence[int], tokens: int = 12) -> list[list[Token]]:
        """Decode some rows greedily in one batch, after prompts of different lengths."""
        net = packed(net)
        prompts = [self.tokens[row, : 1 + 2 * row].tolist() for row in rows]
        source = self._source(_device(net), rows)
        texts: list[list[Token]] = [[] for _ in rows]
        with torch.no_grad():
            for new in generate(net, prompts, tokens=tokens, source=source):
                for token in new:
                    texts[token.row].append(token)
        return texts

    def _source(self, device: torch.device, rows: Sequence[int] | None = None) -> dict[str, Tensor] | None:
        if self.source is None:
            return None
        chosen = range(len(SOURCE_LENGTHS)) if rows is None else rows
        longest = max(SOURCE_LENGTHS[row] for row in chosen)
        return {name: one[list(chosen), :longest].to(device) for name, one in self.source.items()}


def moved(net: M, device: torch.device) -> M:
    """Return a copy on a device."""
    return copy.deepcopy(net).to(device)


def _model(name: str) -> LanguageModel:
    kind: Any = registry.find("model", name)
    fields: type[PartSettings] = kind.Settings
    sizes = OWN.get(name) or {key: value for key, value in SMALL.items() if key in fields.model_fields}
    settings = part_settings("model", RecipeTree({"kind": name, **sizes}))
    model: LanguageModel = kind(settings, **sizes_for(kind, {"vocab_size": VOCAB}))
    for part in model.modules():
        fit = getattr(part, "fit", None)
        if callable(fit):  # n-grams count a text in which some tokens are frequent
            draws = np.random.default_rng(SEED).geometric(0.15, 3000) - 1
            fit(np.minimum(draws, VOCAB - 1))
    return model


def _made(make: Any) -> Any:
    """Make a net from a fixed seed and add noise to all weights, so that nothing is zero and every part matters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        net = make().eval()
        with torch.no_grad():
            for weight in net.parameters():
                inputs = weight[0].numel() if weight.dim() > 1 else 10
                weight.add_(torch.randn_like(weight) * 0.3 / inputs**0.5)
    return net


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def _mask(lengths: Sequence[int]) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def _slopes(value: Tensor) -> Tensor:
    """Return the gradient to feed into a value, different for each of its numbers."""
    return torch.linspace(-1, 2, value.numel()).to(value.device, value.dtype).view_as(value)


def _gradients(net: nn.Module) -> dict[str, Tensor | None]:
    return {f"gradient of {name}": weight.grad for name, weight in net.named_parameters() if weight.requires_grad}


def _on_cpu(values: Mapping[str, Tensor | None]) -> Values:
    return {name: value.detach().cpu() for name, value in values.items() if value is not None}


def _device(net: nn.Module) -> torch.device:
    return next((one.device for one in [*net.parameters(), *net.buffers()]), torch.device("cpu"))

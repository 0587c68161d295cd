"""How fast is translating, beside transformers and CTranslate2 with the same weights?

Marian's shape (6 + 6 layers, 8 heads, width 512, 2,048 inside, 32,000 tokens) with random weights; sources and targets
of 24 tokens; CPU, float32, two threads. Ours and theirs take turns; the ratio is that of the fastest runs.

    python benchmarks/translating.py --batch 16 --beam 5
    python benchmarks/translating.py --batch 16 --beam 5 --through run       # loaded from a run, beside its parts
    python benchmarks/translating.py --batch 16 --beam 5 --through command   # `seqlab predict`, its loading included
    python benchmarks/translating.py --training          # target tokens a second, forward, backward and a step of Adam
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "2"
os.environ["HF_HUB_OFFLINE"] = "1"

import ctranslate2
import torch
import transformers
from click.testing import CliRunner
from torch import nn

from seqlab.cli import group
from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.packing import packed
from seqlab.models.transformer import Transformer
from seqlab.recipe import Recipe, part_settings
from seqlab.recipe_tree import RecipeTree
from seqlab.runs.launch import train
from seqlab.runs.run import Run, load
from seqlab.training.routing import compiled_from, route

VOCAB, WIDTH, HIDDEN, DEPTH, HEADS = 32_000, 512, 2048, 6, 8
SOURCE = TARGET = 24
THREADS = 2
PAD = VOCAB - 1
"""Begins and ends every target; CTranslate2 leaves the last token out, and begins with nothing."""

Texts = list[list[int]]
Translate = Callable[[Texts], Texts]


def their_model() -> transformers.MarianMTModel:
    config = transformers.MarianConfig(
        vocab_size=VOCAB,
        decoder_vocab_size=VOCAB,
        d_model=WIDTH,
        encoder_layers=DEPTH,
        decoder_layers=DEPTH,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=HIDDEN,
        decoder_ffn_dim=HIDDEN,
        max_position_embeddings=512,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=0,
        forced_eos_token_id=None,
        decoder_start_token_id=PAD,
        init_std=0.05,
        dropout=0.1,
    )
    torch.manual_seed(0)
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        model.model.shared.weight[PAD] = 0  # as every Marian has it
    return model.eval()


def our_model(theirs: transformers.MarianMTModel) -> Transformer:
    """The same weights; channels take turns, as our positions do."""
    shape = {"width": WIDTH, "hidden_width": HIDDEN, "depth": DEPTH, "heads": HEADS, "dropout": 0.1}
    kind = {
        "kind": "transformer",
        "norm_first": False,
        "activation": "swish",
        "output": {"kind": "softmax", "bias": True},
    }
    model = Transformer(part_settings("model", RecipeTree({**kind, **shape})), VOCAB)
    own, turns = theirs.state_dict(), torch.arange(WIDTH).view(2, -1).t().flatten()

    def put(linear: nn.Linear, names: list[str], inward: bool) -> None:
        weight, bias = (torch.cat([own[f"{name}.{part}"] for name in names]) for part in ("weight", "bias"))
        linear.weight.copy_(weight[:, turns] if inward else weight[turns])
        linear.bias.copy_(bias if inward else bias[turns])

    def put_norm(norm: nn.LayerNorm, name: str) -> None:
        norm.weight.copy_(own[f"{name}.weight"][turns])
        norm.bias.copy_(own[f"{name}.bias"][turns])

    with torch.no_grad():
        model.embedding.weight.copy_(own["model.shared.weight"][:, turns])
        model.output.bias.copy_(own["final_logits_bias"][0])  # type: ignore[operator, union-attr]
        for side, blocks in (("encoder", model.encoder.blocks), ("decoder", model.decoder.blocks)):
            for number, block in enumerate(blocks):
                at = f"model.{side}.layers.{number}"
                put(block.attend.query_key_value, [f"{at}.self_attn.{part}_proj" for part in "qkv"], True)
                put(block.attend.output, [f"{at}.self_attn.out_proj"], False)
                put_norm(block.norm_attend, f"{at}.self_attn_layer_norm")
                if side == "decoder":
                    put(block.cross_attend.query, [f"{at}.encoder_attn.q_proj"], True)
                    put(block.cross_attend.key_value, [f"{at}.encoder_attn.{part}_proj" for part in "kv"], True)
                    put(block.cross_attend.output, [f"{at}.encoder_attn.out_proj"], False)
                    put_norm(block.norm_cross_attend, f"{at}.encoder_attn_layer_norm")
                put(block.feed.expand, [f"{at}.fc1"], True)
                put(block.feed.contract, [f"{at}.fc2"], False)
                put_norm(block.norm_feed, f"{at}.final_layer_norm")
    return model.eval()


def seqlab(model: Transformer, width: int) -> Translate:
    twin = packed(model)

    def translate(sources: Texts) -> Texts:
        source = {"tokens": torch.tensor(sources), "mask": torch.ones(len(sources), SOURCE, dtype=torch.bool)}
        beam = Beam(width, shortest=TARGET, best=1)
        found = beam_search(twin, [[PAD]] * len(sources), beam, TARGET, frozenset({0}), source)
        return [list(one[0].tokens) for one in found]

    return translate


def hugging_face(model: transformers.MarianMTModel, width: int) -> Translate:
    def translate(sources: Texts) -> Texts:
        tokens = torch.tensor(sources)
        made = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            num_beams=width,
            do_sample=False,
            min_new_tokens=TARGET,
            max_new_tokens=TARGET,
            length_penalty=0.0,
        )
        return made[:, 1:].tolist()

    return translate


def ctranslate(model: transformers.MarianMTModel, width: int) -> Translate:
    """Through its own specification: its converter wants the files of a tokenizer."""
    converter = ctranslate2.converters.transformers.MarianMTLoader()
    spec = converter.get_model_spec(model)
    names = [f"t{number}" for number in range(VOCAB - 1)]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.eos_token = spec.config.unk_token = spec.config.decoder_start_token = "t0"
    spec.config.bos_token = "t0"
    with tempfile.TemporaryDirectory() as folder:
        spec.validate()
        spec.optimize(quantization=None)
        spec.save(folder)
        translator = ctranslate2.Translator(folder, device="cpu", compute_type="float32", intra_threads=THREADS)

    def translate(sources: Texts) -> Texts:
        made = translator.translate_batch(
            [[f"t{token}" for token in source] for source in sources],
            max_batch_size=len(sources),
            beam_size=width,
            length_penalty=0,
            min_decoding_length=TARGET,
            max_decoding_length=TARGET,
            max_input_length=0,
        )
        return [[int(token[1:]) for token in one.hypotheses[0]] for one in made]

    return translate


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(name: str, ours: Callable[[], object], theirs: Callable[[], object], count: int, pairs: int) -> None:
    ours(), theirs()
    measured = [(seconds(ours), seconds(theirs)) for _ in range(pairs)]
    own, other = (min(column) for column in zip(*measured, strict=True))
    rates = f"seqlab {count / own:,.0f} target tokens/s, {name} {count / other:,.0f}"
    print(f"{rates}: {other / own:.2f} times as fast ({pairs} pairs)", flush=True)


def train_step(loss: Callable[[], torch.Tensor], model: nn.Module) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def training(theirs: transformers.MarianMTModel, rows: int, pairs: int) -> None:
    model, theirs = our_model(theirs).train(), theirs.train()
    route(model, compiled_from("auto", torch.device("cpu")))  # as in a run
    source, target = torch.randint(1, PAD, (rows, SOURCE)), torch.randint(1, PAD, (rows, TARGET))
    begun = torch.cat([torch.full((rows, 1), PAD), target[:, :-1]], 1)
    real = torch.ones_like(source, dtype=torch.bool)

    def own() -> torch.Tensor:
        states = model(begun, None, None, {"tokens": source, "mask": real}).states
        return model.losses(states.flatten(0, 1), target.flatten()).mean()

    def other() -> torch.Tensor:
        return theirs(input_ids=source, attention_mask=real.long(), labels=target).loss

    compare("transformers", train_step(own, model), train_step(other, theirs), rows * TARGET, pairs)


def loaded_run(folder: Path, rows: int, width: int) -> Run:
    """A run of the same shape after one step of training; its tokens are numbers. `asked.txt` has `rows` lines."""
    draw = random.Random(0)
    lines = [" ".join(str(draw.randrange(VOCAB - 1)) for _ in range(SOURCE - 1)) for _ in range(rows + 32)]
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "".join(f"{line}\t{line}\n" for line in lines))
    (folder / "asked.txt").write_text("".join(f"{line}\n" for line in lines[:rows]))
    shape = {"width": WIDTH, "hidden_width": HIDDEN, "depth": DEPTH, "heads": HEADS}
    shape |= {"output": {"kind": "softmax", "tied": False}}  # tied and untrained, it would repeat <end>, and be done
    settings = {
        "name": "translating",
        "task": {"kind": "translation"},
        "data": {"train": str(folder / "pairs.tsv")},
        "tokenizer": {"kind": "ids", "vocab_size": VOCAB},
        "model": {"kind": "transformer", "norm_first": False, "activation": "swish", **shape},
        "objective": {"kind": "next-token"},
        "training": {"steps": 1, "batch_size": 4, "learning_rate": 1e-9},
        "decoding": {"beam": width},
    }
    train(Recipe.from_dict(settings), out=folder / "run")
    return load(folder / "run")


def through(way: str, rows: int, width: int, pairs: int) -> None:
    """A loaded run (or the command) beside the packed model that the other figures are of: the same answers."""
    with tempfile.TemporaryDirectory() as folder:
        run, asked = loaded_run(Path(folder), rows, width), f"{folder}/asked.txt"
        parts, lines = packed(run.model), Path(asked).read_text().splitlines()

        def own() -> list[str]:
            source = run.task.prompts(lines).source
            found = run.task.searched(parts, source)  # type: ignore[attr-defined]
            return [run.tokenizer.decode(one[0].tokens) for one in found]

        def product() -> list[str]:
            if way == "run":
                return [answer["answer"] for answer in run.predict(asked, lines=True, batch_size=rows)]
            command = ["predict", str(run.folder), "--batch-size", str(rows), "--json"]
            said = CliRunner().invoke(group, command, input=Path(asked).read_text())
            return [json.loads(line)["answer"] for line in said.stdout.splitlines()]

        same, start = own() == product(), time.perf_counter()
        load(run.folder).decoder  # noqa: B018
        print(
            f"batch {rows}, beam {width}: answers through {way} are {'the same' if same else 'NOT the same'}; ", end=""
        )
        print(f"loading takes {time.perf_counter() - start:.2f} s")
        written = sum(len(answer.split()) for answer in own())
        measured = [(seconds(own), seconds(product)) for _ in range(pairs)]
        one, other = (min(column) for column in zip(*measured, strict=True))
        rates = f"parts {written / one:,.0f} tokens/s, {way} {written / other:,.0f}"
        print(f"{rates}: {one / other:.3f} of the speed ({pairs} pairs)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--through", choices=["parts", "run", "command"], default="parts")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    if arguments.through != "parts":
        through(arguments.through, arguments.batch, arguments.beam, arguments.pairs)
        return
    transformers.logging.set_verbosity_error()
    theirs = their_model()
    if arguments.training:
        training(theirs, arguments.batch, arguments.pairs)
        return
    sources = torch.randint(1, PAD, (arguments.batch, SOURCE), generator=torch.Generator().manual_seed(1)).tolist()
    ours = seqlab(our_model(theirs), arguments.beam)
    for name, make in (("transformers", hugging_face), ("ctranslate2", ctranslate)):
        peer = make(theirs, arguments.beam)
        equal = sum(a == b for a, b in zip(ours(sources), peer(sources), strict=True))
        shape = f"batch {arguments.batch}, beam {arguments.beam}"
        print(f"{shape}: {equal} of {len(sources)} texts equal to those of {name}")
        count = arguments.batch * TARGET
        compare(name, lambda: ours(sources), lambda peer=peer: peer(sources), count, arguments.pairs)


if __name__ == "__main__":
    main()

"""How fast is greedy decoding, beside transformers and CTranslate2 with the same weights?

A GPT-2 of 6 layers, 8 heads, width 512 and 8,000 tokens with random weights; prompts of 16 tokens, 128 new ones; CPU,
float32, two threads. Each pair runs ours and then theirs; the ratio is that of the fastest runs. Then the share of the
memory bandwidth that a single row reaches: the bytes of weights read for a token, over what a plain read of a large
tensor reaches.

    python benchmarks/decoding.py --batch 1
    python benchmarks/decoding.py --batch 16
    python benchmarks/decoding.py --batch 16 --through run       # loaded from a run folder, beside its parts
    python benchmarks/decoding.py --batch 16 --through command   # `seqlab generate`, its loading included
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
import tokenizers
import torch
import transformers
from click.testing import CliRunner

from seqlab.cli import group
from seqlab.decoding.generate import generate
from seqlab.decoding.packing import packed
from seqlab.models.gpt import GPT
from seqlab.models.language_model import LanguageModel
from seqlab.recipe import Recipe
from seqlab.runs.launch import train
from seqlab.runs.run import Run, load

VOCAB, WIDTH, DEPTH, HEADS, PROMPT, NEW = 8_000, 512, 6, 8, 16, 128
CONTEXT = 256
THREADS = 2

Texts = list[list[int]]
Decode = Callable[[Texts], Texts]


def their_model() -> transformers.GPT2LMHeadModel:
    config = transformers.GPT2Config(
        vocab_size=VOCAB,
        n_positions=CONTEXT,
        n_embd=WIDTH,
        n_layer=DEPTH,
        n_head=HEADS,
        bos_token_id=0,
        eos_token_id=0,
        initializer_range=0.1,  # larger than usual: texts that go somewhere, and few near ties
    )
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config).eval()


def our_model(theirs: transformers.GPT2LMHeadModel) -> GPT:
    """The same parts in the same order; their linear maps are stored as inputs × outputs."""
    settings = GPT.Settings(kind="gpt", width=WIDTH, depth=DEPTH, heads=HEADS, context=CONTEXT)
    ours = GPT(settings, VOCAB).eval()
    with torch.no_grad():
        for (name, tensor), own in zip(theirs.named_parameters(), ours.parameters(), strict=True):
            own.copy_(tensor.t() if ".c_" in name and tensor.dim() > 1 else tensor)
    return ours


def seqlab(model: LanguageModel) -> Decode:
    def decode(prompts: Texts) -> Texts:
        steps = [[token.id for token in step] for step in generate(model, prompts, tokens=NEW)]
        return [list(text) for text in zip(*steps, strict=True)]

    return decode


def hugging_face(model: transformers.GPT2LMHeadModel) -> Decode:
    def decode(prompts: Texts) -> Texts:
        tokens = torch.tensor(prompts)
        made = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            max_new_tokens=NEW,
            min_new_tokens=NEW,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        return made[:, PROMPT:].tolist()

    return decode


def ctranslate(model: transformers.GPT2LMHeadModel) -> Decode:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(f"{folder}/gpt2")
        vocabulary = {f"t{number}": number for number in range(VOCAB)}
        plain = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="t0"))
        named = {"bos_token": "t0", "eos_token": "t0", "unk_token": "t0"}
        transformers.PreTrainedTokenizerFast(tokenizer_object=plain, **named).save_pretrained(f"{folder}/gpt2")
        ctranslate2.converters.TransformersConverter(f"{folder}/gpt2").convert(f"{folder}/ct2")
        generator = ctranslate2.Generator(
            f"{folder}/ct2", device="cpu", compute_type="float32", inter_threads=1, intra_threads=THREADS
        )

    def decode(prompts: Texts) -> Texts:
        made = generator.generate_batch(
            [[f"t{token}" for token in prompt] for prompt in prompts],
            max_batch_size=len(prompts),
            beam_size=1,
            min_length=NEW,
            max_length=NEW,
            include_prompt_in_result=False,
        )
        return [result.sequences_ids[0] for result in made]

    return decode


def seconds(decode: Decode, prompts: Texts) -> float:
    start = time.perf_counter()
    decode(prompts)
    return time.perf_counter() - start


def compare(name: str, ours: Decode, theirs: Decode, prompts: Texts, pairs: int) -> float:
    """Interleaved; prints both minima and their ratio, and gives our seconds a token."""
    measured = [(seconds(ours, prompts), seconds(theirs, prompts)) for _ in range(pairs)]
    own, other = (min(column) for column in zip(*measured, strict=True))
    count = len(prompts) * NEW
    print(
        f"batch {len(prompts)}: seqlab {count / own:,.0f} tokens/s, {name} {count / other:,.0f} tokens/s: "
        f"{other / own:.2f} times as fast ({pairs} pairs, {1e3 * own / NEW:.2f} and {1e3 * other / NEW:.2f} ms a step)",
        flush=True,
    )
    return own / NEW


def check_texts(name: str, ours: Texts, theirs: Texts, plain: GPT, prompts: Texts) -> None:
    """Equal texts; where one parts from the other, by how little the two tokens differ there."""
    equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
    assert all(len(text) == NEW for text in [*ours, *theirs])
    print(f"{equal} of {len(ours)} texts equal to those of {name}")
    for prompt, own, other in zip(prompts, ours, theirs, strict=True):
        if own != other:
            place = next(i for i in range(NEW) if own[i] != other[i])
            with torch.inference_mode():
                logits = plain.logits(plain(torch.tensor([prompt + own[:place]])).states[0, -1])
            gap = float(logits[own[place]] - logits[other[place]])
            print(f"  parted at token {place}, where the logits of the two differ by {gap:.1e}")


def read_bandwidth(megabytes: int = 1024, rounds: int = 12) -> float:
    """Bytes a second of a two-thread sum over a tensor larger than any cache; the best of several."""
    large = torch.ones(megabytes * 2**20 // 4)
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        large.sum()
        best = min(best, time.perf_counter() - start)
    return large.numel() * 4 / best


def loaded_run(folder: Path) -> Run:
    """A run folder of the same shape, after one step of training; its tokens are numbers, and any text is one."""
    draw = random.Random(0)
    (folder / "text.txt").write_text(" ".join(str(draw.randrange(VOCAB - 1)) for _ in range(4 * CONTEXT)))
    model = {"kind": "gpt", "width": WIDTH, "depth": DEPTH, "heads": HEADS, "context": CONTEXT}
    settings = {
        "name": "decoding",
        "task": {"kind": "language-modelling", "window": CONTEXT},
        "data": {"train": str(folder / "text.txt")},
        "tokenizer": {"kind": "ids", "vocab_size": VOCAB},
        "model": model,
        "objective": {"kind": "next-token"},
        "training": {"steps": 1, "batch_size": 1, "learning_rate": 1e-9},
    }
    train(Recipe.from_dict(settings), out=folder / "run")
    return load(folder / "run")


def through(way: str, rows: int, pairs: int) -> None:
    """A loaded run (or the command) beside the packed model that the other figures are of: the same texts."""
    with tempfile.TemporaryDirectory() as folder:
        run = loaded_run(Path(folder))
        prompt = " ".join(map(str, range(PROMPT - 1)))
        prompts = run.task.prompts([prompt] * rows).tokens
        parts, choose, stop = packed(run.model), run.choose(seed=1, temperature=1.0), frozenset({run.tokenizer.end_id})

        def own() -> list[str]:
            steps = generate(parts, prompts, choose, NEW, stop)
            texts: Texts = [[] for _ in prompts]
            for step in steps:
                for token in step:
                    texts[token.row].append(token.id)
            return [run.tokenizer.decode(text) for text in texts]

        def product() -> list[str]:
            if way == "run":
                return run.generate(prompt, tokens=NEW, choose=choose, samples=rows)
            asked = ["generate", str(run.folder), "--prompt", prompt, "--tokens", str(NEW), "--samples", str(rows)]
            said = CliRunner().invoke(group, [*asked, "--temperature", "1", "--seed", "1", "--json"])
            return [text.removeprefix(prompt) for text in json.loads(said.stdout)["texts"]]

        same = [text.split() for text in own()] == [text.split() for text in product()]
        start = time.perf_counter()
        load(run.folder).decoder  # noqa: B018
        loading, equal = time.perf_counter() - start, "the same" if same else "NOT the same"
        print(f"batch {rows}: texts through {way} are {equal}; loading takes {loading:.2f} s")
        measured = [(clocked(own), clocked(product)) for _ in range(pairs)]
        one, other = (min(column) for column in zip(*measured, strict=True))
        rates = f"parts {rows * NEW / one:,.0f} tokens/s, {way} {rows * NEW / other:,.0f}"
        print(f"{rates}: {one / other:.3f} of the speed ({pairs} pairs)")


def clocked(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--peer", choices=["transformers", "ctranslate2", "both"], default="both")
    parser.add_argument("--through", choices=["parts", "run", "command"], default="parts")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    if arguments.through != "parts":
        through(arguments.through, arguments.batch, arguments.pairs)
        return
    transformers.logging.set_verbosity_error()
    theirs = their_model()
    plain = our_model(theirs)
    ours = seqlab(packed(plain))
    peers = {"transformers": hugging_face(theirs), "ctranslate2": ctranslate(theirs)}
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(VOCAB, (arguments.batch, PROMPT), generator=generator).tolist()
    for name, peer in peers.items():
        if arguments.peer in (name, "both"):
            check_texts(name, ours(prompts), peer(prompts), plain, prompts)
            step = compare(name, ours, peer, prompts, arguments.pairs)
    if arguments.batch == 1:
        weights = 4 * sum(w.numel() for name, w in plain.named_parameters() if not name.startswith("position"))
        bandwidth = read_bandwidth()
        print(
            f"{weights / 1e6:.0f} MB of weights a token: {weights / step / 1e9:.1f} GB/s, "
            f"{weights / step / bandwidth:.0%} of the {bandwidth / 1e9:.1f} GB/s of a plain read"
        )


if __name__ == "__main__":
    main()

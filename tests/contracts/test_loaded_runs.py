"""What decoding promises, for models as the product puts them together: a run folder, `seqlab.load`, `Run`."""

import pytest
import torch
from tolerance import SMALL_NET, close

import seqlab
from seqlab.decoding import compiled, packing
from seqlab.decoding.beam import Beam, beam_search
from seqlab.decoding.compiled import CompiledLinear
from seqlab.decoding.packing import packed
from seqlab.decoding.scoring import score
from seqlab.models.language_model import TokenModel
from seqlab.nn.output import Softmax
from seqlab.recipe import Recipe

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
LINES = [" ".join(WORDS[(3 * row + 7 * place) % 10] for place in range(1 + row % 7)) for row in range(60)]
ASKED = [LINES[0], "", *LINES[7:16], " ".join(LINES)]

UNTIED, BIASED = {"kind": "softmax", "tied": False}, {"kind": "softmax", "bias": True}
ADAPTIVE = {"kind": "adaptive", "cutoffs": [4, 8], "shrink": 2}
GPT = {"kind": "gpt", "width": 24, "depth": 2, "heads": 3, "context": 256}
WRITERS = {
    "ngram": {"kind": "ngram", "order": 3},
    "mlp": {"kind": "mlp", "window": 4, "width": 12, "hidden_width": 20},
    "lstm": {"kind": "recurrent", "cell": "lstm", "width": 20, "depth": 2},
    "gru-untied": {"kind": "recurrent", "cell": "gru", "width": 20, "output": UNTIED},
    "elman": {"kind": "recurrent", "cell": {"kind": "elman", "activation": "tanh"}, "width": 20},
    "convolutional": {"kind": "convolutional", "width": 20, "depth": 3},
    "gpt": GPT,
    "gpt-biased": {**GPT, "output": BIASED},
    "gpt-adaptive": {**GPT, "output": ADAPTIVE},
}
RECURRENT, CONVOLUTIONAL = {"kind": "recurrent-translator", "width": 20}, {"kind": "convolutional-translator"}
TRANSFORMER = {"kind": "transformer", "width": 24, "depth": 2, "heads": 3}
READERS = {
    "recurrent": RECURRENT,
    "recurrent-additive": {**RECURRENT, "attention": "additive", "both_ways": "first", "depth": 2},
    "recurrent-feeding": {**RECURRENT, "attention": {"kind": "dot", "feeding": True}},
    "convolutional": {**CONVOLUTIONAL, "width": 24, "depth": 2},
    "transformer": TRANSFORMER,
    "transformer-biased": {**TRANSFORMER, "norm_first": False, "output": BIASED},
}
EVERY = [*(("language-modelling", name) for name in WRITERS), *(("translation", name) for name in READERS)]
needs_kernels = pytest.mark.skipif(compiled.library() is None, reason="there is no C++ compiler with OpenMP here")


@pytest.fixture(scope="module")
def folders(_own_cache, tmp_path_factory):
    """A run folder of each kind, after one step of training."""
    folder, made = tmp_path_factory.mktemp("loaded"), {}
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n")
    rows = (f"{line}\t{' '.join(reversed(line.split()))}\n" for line in LINES)
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "".join(rows))

    def train(task, name):
        if (task, name) not in made:
            model = (WRITERS if task == "language-modelling" else READERS)[name]
            file = "lines.txt" if task == "language-modelling" else "pairs.tsv"
            counted = {} if name == "ngram" else {"training": {"steps": 1, "batch_size": 8}}
            settings = {
                "name": "test",
                "task": {"kind": task},
                "data": {"train": str(folder / file), "documents": "line"},
                "tokenizer": {"kind": "word", "split": "whitespace"},
                "model": model,
                "objective": {"kind": "next-token"},
                **counted,
            }
            made[task, name] = seqlab.train(Recipe.from_dict(settings), out=folder / f"{task}-{name}").folder
        return made[task, name]

    return train


@pytest.fixture
def loaded(folders):
    """A run as a person loads it, with weights far from zero: after one step, all tokens would be about as likely."""

    def load(task, name, **decoding):
        run = seqlab.load(folders(task, name))
        draw = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in run.model.parameters():
                weight.add_(torch.randn(weight.shape, generator=draw) * (0.4 if weight.dim() > 1 else 0.1))
        return run.changed({f"decoding.{key}": value for key, value in decoding.items()}) if decoding else run

    return load


@pytest.fixture
def asked(tmp_path):
    file = tmp_path / "asked.txt"
    file.write_text("\n".join(ASKED) + "\n")
    return str(file)


def kinds(model):
    """What a model is made of, part by part, and which parts choose tokens inside the output's map."""
    return [(name, type(part), "best" in vars(part)) for name, part in model.named_modules()]


@pytest.mark.parametrize(("task", "name"), EVERY)
def test_a_loaded_run_decodes_with_the_parts_of_a_packed_model(loaded, task, name):
    """Which are what the contracts and the benchmarks of decoding are about."""
    run = loaded(task, name)
    assert kinds(run.decoder) == kinds(packed(run.model))


@needs_kernels
@pytest.mark.parametrize(("task", "name"), EVERY)
def test_the_best_tokens_are_chosen_inside_the_output_map(loaded, asked, monkeypatch, task, name):
    """At every step of a search, wherever the output is a single map; and logits are never held."""
    chosen, held = [], []

    def noted(linear, states, count):
        chosen.append(linear)
        return compiled.best_outputs(linear, states, count)

    run = loaded(task, name, beam=3)  # first, since it may have to be trained
    monkeypatch.setattr(packing, "best_outputs", noted)
    monkeypatch.setattr(Softmax, "logits", _noting(Softmax.logits, held))
    if task == "translation":
        assert len(list(run.predict(asked, lines=True))) == len(ASKED)
    else:
        assert len(run.beam("one two", Beam(3), 5)) == 3
    single = isinstance(run.model, TokenModel) and isinstance(run.model.output, Softmax)
    assert single == (name not in ("ngram", "gpt-adaptive"))
    assert bool(chosen) == single
    assert all(isinstance(linear, CompiledLinear) for linear in chosen)
    assert not held


def _noting(logits, held):
    def noted(self, *arguments):
        held.append(self)
        return logits(self, *arguments)

    return noted


@pytest.mark.parametrize("beam", [None, 3])
@pytest.mark.parametrize("name", READERS)
def test_answers_of_a_loaded_run_are_the_same_in_any_batch(loaded, asked, name, beam):
    """Texts, log-probabilities and ranks, bit for bit, an empty line and a long one among them."""
    run = loaded("translation", name, beam=beam, best=beam or 1)
    alone = list(run.predict(asked, lines=True, batch_size=1))
    assert len({answer["log_probability"] for answer in alone}) > 9, "answers are alike: the test tests too little"
    bits = compiled.library() is not None or not name.startswith("recurrent-")
    for size in (2, 3, 50):
        found = list(run.predict(asked, lines=True, batch_size=size))
        if bits:
            assert found == alone
            continue
        # without kernels, the attention of a recurrent translator multiplies by the library
        assert [one["answer"] for one in found] == [one["answer"] for one in alone]
        ranks = ([one["rank"] for one in answers] for answers in (found, alone))
        close(*map(torch.tensor, ranks), steps=SMALL_NET)


def texts(answers):
    return [answer["answer"] for answer in answers]


@pytest.mark.parametrize("name", READERS)
def test_evaluation_judges_the_answers_of_predict(loaded, folders, name):
    run = loaded("translation", name, beam=2)
    split = run.held_out()
    found = run.evaluate(metrics=["exact", "bleu"])
    same = loaded("translation", name, beam=2)
    assert texts(run.answers(split, 1)) == texts(same.answers(same.held_out(), 50))
    assert same.evaluate(metrics=["exact", "bleu"], batch_size=1)["bleu"] == found["bleu"]


@pytest.mark.parametrize("name", WRITERS)
def test_texts_of_a_loaded_run_are_the_same_in_any_batch(loaded, name):
    run = loaded("language-modelling", name)
    prompts = [text or "one" for text in ASKED[:-1]]
    greedy = run.choose(temperature=0)

    def written(some):
        texts = [""] * len(some)
        for row, piece in run.stream(some, choose=greedy, tokens=12):
            texts[row] += piece
        return texts

    alone = [written([prompt])[0] for prompt in prompts]
    for size in (2, 3, len(prompts)):
        together = [text for start in range(0, len(prompts), size) for text in written(prompts[start : start + size])]
        assert together == alone
    assert [run.score([prompt])[0] for prompt in prompts] == run.score(prompts)


@pytest.mark.parametrize("name", WRITERS)
def test_texts_of_a_loaded_run_are_those_of_the_packed_model(loaded, name):
    """What is loaded, and what is made of its weights by hand: the same bits."""
    run = loaded("language-modelling", name)
    model, end = packed(run.model), run.tokenizer.end_id
    (found,) = beam_search(model, run.task.prompts(["one two"]).tokens, Beam(4), 9, frozenset({end}))
    assert [chance for _, chance in run.beam("one two", Beam(4), 9)] == [one.log_probability for one in found]
    # whole lines are scored by the model as it was trained, whose fused kernels read them faster
    assert run.score(LINES) == score(run.model, [[*ids, end] for ids in run.tokenizer.encode_batch(LINES)], end)

"""GPT against the GPT-2 of transformers with the same random weights."""

import copy

import pytest
import torch
from tolerance import close
from torch.nn import functional as F

from seqlab.decoding.generate import generate
from seqlab.models.gpt import GPT

transformers = pytest.importorskip("transformers", reason="the reference implementation is not installed")

VOCAB, WIDTH, DEPTH, HEADS, CONTEXT = 61, 48, 3, 4, 40


@pytest.fixture(scope="module")
def models():
    """Theirs with random weights, and ours with the same, in double precision."""
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_embd=WIDTH, n_layer=DEPTH, n_head=HEADS, initializer_range=0.2
    )
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight) * 0.1)
    settings = GPT.Settings(kind="gpt", width=WIDTH, depth=DEPTH, heads=HEADS, context=CONTEXT)
    ours = GPT(settings, VOCAB).eval()
    ours.load_state_dict(translated(theirs.state_dict()))
    return ours.double(), theirs.double()


def translated(theirs):
    """Their names in ours; their linear maps are stored as inputs × outputs, ours as outputs × inputs."""
    parts = {
        "norm_attend": "ln_1",
        "attend.output": "attn.c_proj",
        "norm_feed": "ln_2",
        "feed.expand": "mlp.c_fc",
        "feed.contract": "mlp.c_proj",
    }
    ours = {
        "embedding.weight": theirs["transformer.wte.weight"],
        "position.weight": theirs["transformer.wpe.weight"],
        "norm.weight": theirs["transformer.ln_f.weight"],
        "norm.bias": theirs["transformer.ln_f.bias"],
    }
    for layer in range(DEPTH):
        for own, other in parts.items():
            for kind in ("weight", "bias"):
                tensor = theirs[f"transformer.h.{layer}.{other}.{kind}"]
                ours[f"blocks.{layer}.{own}.{kind}"] = tensor.t() if tensor.dim() > 1 else tensor
        for kind in ("weight", "bias"):
            three = theirs[f"transformer.h.{layer}.attn.c_attn.{kind}"].t().chunk(3)
            for part, tensor in zip(("query", "key", "value"), three, strict=True):
                ours[f"blocks.{layer}.attend.{part}.{kind}"] = tensor
    return ours


def tokens(rows, time):
    return torch.randint(VOCAB, (rows, time), generator=torch.Generator().manual_seed(time))


def test_as_many_weights(models):
    ours, theirs = models
    assert sum(p.numel() for p in ours.parameters()) == theirs.num_parameters()


def test_parameters_of_gpt2_xl_without_building_it():
    with torch.device("meta"):
        model = GPT(GPT.Settings(kind="gpt", width=1600, depth=48, heads=25, context=1024), 50257)
    assert sum(p.numel() for p in model.parameters()) == 1_557_611_200


def test_logits_all_at_once(models):
    ours, theirs = models
    text = tokens(3, CONTEXT)
    with torch.no_grad():
        close(ours.logits(ours(text).states), theirs(text).logits)


def test_logits_step_by_step_with_a_cache(models):
    ours, theirs = models
    text, state, past = tokens(2, CONTEXT), ours.start(rows=2), None
    with torch.no_grad():
        for time in range(CONTEXT):
            logits, state = ours.step(text[:, time], state)
            output = theirs(text[:, time : time + 1], past_key_values=past, use_cache=True)
            past = output.past_key_values
            close(logits, output.logits[:, -1])


def test_padding_on_the_right_equals_their_attention_mask(models):
    ours, theirs = models
    text, lengths = tokens(3, 20), torch.tensor([20, 4, 11])
    mask = torch.arange(20) < lengths[:, None]
    with torch.no_grad():
        found = ours.logits(ours(text, ours.start(rows=3), mask).states)
        expected = theirs(text, attention_mask=mask.long()).logits
    close(found[mask], expected[mask])


def test_gradients(models):
    ours, theirs = models
    text = tokens(2, 16)
    theirs.zero_grad()
    F.cross_entropy(theirs(text).logits[:, :-1].flatten(0, 1), text[:, 1:].flatten()).backward()  # theirs is in float32
    ours.zero_grad()
    states = ours(text[:, :-1]).states.flatten(0, 1)
    ours.losses(states, text[:, 1:].flatten()).mean().backward()
    expected = translated({name: p.grad for name, p in theirs.named_parameters()})
    with torch.no_grad():  # gradients in the place of the weights have the names of the weights
        gradients = copy.deepcopy(ours)
        for own, weight in zip(gradients.parameters(), ours.parameters(), strict=True):
            own.copy_(weight.grad)
    for name, gradient in gradients.state_dict().items():
        nothing = name.endswith("key.bias")  # which a softmax does not see
        close(gradient, expected[name], size=1.0 if nothing else None)


def test_greedy_texts(models):
    ours, theirs = models
    prompt = tokens(1, 6)
    found = [token.id for (token,) in generate(ours, prompt.tolist(), tokens=20)]
    made = theirs.generate(prompt, max_new_tokens=20, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert found == made[0, 6:].tolist()

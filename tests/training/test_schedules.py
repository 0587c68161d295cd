"""Schedules against their closed forms."""

import math

import pytest

from seqlab import registry
from seqlab.training.schedules import Constant, Cosine, InverseSquareRoot, Linear


def made(cls, steps, **settings):
    return cls(cls.Settings(kind="test", **settings), steps)


def test_the_schedule_of_bert():
    """Peak 1e-4, 10,000 steps of warm-up, then straight down to zero at a million."""
    schedule = made(Linear, 1_000_000, warmup=10_000)
    rates = {step: 1e-4 * schedule(step) for step in (5_000, 10_000, 505_000, 1_000_000)}
    assert rates == pytest.approx({5_000: 5e-5, 10_000: 1e-4, 505_000: 5e-5, 1_000_000: 0.0}, abs=1e-15)


@pytest.mark.parametrize("step", [1, 50, 99, 100, 101, 700, 1000])
def test_closed_forms(step):
    warm = min(1.0, step / 100)
    after = max(0, step - 100) / 900
    assert made(Constant, 1000, warmup=100)(step) == pytest.approx(warm)
    assert made(Linear, 1000, warmup=100)(step) == pytest.approx(warm if step < 100 else 1 - after)
    cosine = made(Cosine, 1000, warmup=100, floor=0.2)(step)
    assert cosine == pytest.approx(warm if step < 100 else 0.2 + 0.8 * (1 + math.cos(math.pi * after)) / 2)
    # Vaswani et al. 2017: width^-½ · min(step^-½, step · warmup^-1½), whose peak is width^-½ · warmup^-½
    noam = min(step**-0.5, step * 100**-1.5) * 100**0.5
    assert made(InverseSquareRoot, 1000, warmup=100)(step) == pytest.approx(noam)


def test_ends():
    assert made(Cosine, 500)(500) == pytest.approx(0.1)  # the default floor
    assert made(Cosine, 500, floor=0.0)(500) == pytest.approx(0.0)
    assert made(Linear, 500)(500) == 0.0
    assert made(Constant, 500)(500) == 1.0


@pytest.mark.parametrize("name", registry.names("schedule"))
@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (0, 50), (10, 50), (50, 50), (400, 50)])
def test_every_schedule_is_a_factor_and_has_no_jumps(name, warmup, steps):
    schedule = made(registry.find("schedule", name), steps, warmup=warmup)
    factors = [schedule(step) for step in range(1, steps + 1)]
    assert all(0 <= factor <= 1 + 1e-12 for factor in factors)
    assert factors[min(warmup, steps) - 1 if warmup else 0] == max(factors)
    if warmup:
        rising = factors[: min(warmup, steps)]
        assert rising == pytest.approx([step / min(warmup, steps) for step in range(1, len(rising) + 1)])
    falling = factors[max(0, min(warmup, steps) - 1) :]
    assert falling == sorted(falling, reverse=True)


def test_warm_up_as_a_share_of_all_steps():
    """A recipe then fits any budget."""
    assert [made(Constant, steps, warmup=0.05)(steps // 40) for steps in (400, 4000)] == [0.5, 0.5]
    assert made(Linear, 400, warmup=0.05)(20) == made(Linear, 400, warmup=20)(20) == 1.0


def test_warm_up_of_half_a_step_too_many():
    with pytest.raises(ValueError, match="whole number of steps, or a share"):
        made(Constant, 100, warmup=10.5)

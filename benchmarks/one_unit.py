"""Why does one recurrent unit forecast noisy waves so differently from start to start?

h_t = tanh(w x_t + u h_{t−1} + b): three numbers. A hundred of them start as Keras draws them (w by Glorot, u = ±1 as an
orthogonal matrix of one number, b = 0), and learn side by side, each in an order of its own: Adam, 20 epochs of batches
of 32. Beside them the best three numbers for the training part, by L-BFGS. One thread.

    python benchmarks/one_unit.py        # some minutes
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from seqlab.data.builtin.synthetic import synthetic

STARTS, EPOCHS, BATCH = 100, 20, 32
PRINTED = 0.0110


def waves(name: str, split: str) -> tuple[Tensor, Tensor]:
    """Inputs (T, N) and what follows (N,)."""
    values = torch.tensor(np.stack([one.values[:, 0] for one in synthetic(name, split).series]), dtype=torch.float32)
    return values[:, :-1].T.contiguous(), values[:, -1]


def forecast(numbers: Tensor, x: Tensor) -> Tensor:
    """Numbers (S, 3) and series (T, S, N) → (S, N)."""
    w, u, b = numbers[:, :, None].unbind(1)
    h = torch.zeros(x.shape[1:], dtype=x.dtype)
    for now in x:
        h = torch.tanh(w * now + u * h + b)
    return h


def errors(numbers: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The mean squared error of each (S,)."""
    return (forecast(numbers, x[:, None].expand(-1, len(numbers), -1)) - y).square().mean(1)


def learnt(starts: Tensor, x: Tensor, y: Tensor) -> Tensor:
    numbers = starts.clone().requires_grad_()
    optimizer = torch.optim.Adam([numbers], lr=0.001, eps=1e-7)
    for _ in range(EPOCHS):
        order = torch.stack([torch.randperm(len(y)) for _ in starts])
        for rows in order.split(BATCH, 1):
            optimizer.zero_grad()
            (forecast(numbers, x[:, rows]) - y[rows]).square().mean(1).sum().backward()
            optimizer.step()
    return numbers.detach()


def best(x: Tensor, y: Tensor) -> Tensor:
    numbers = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.double, requires_grad=True)
    optimizer = torch.optim.LBFGS([numbers], max_iter=60, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        error = errors(numbers, x.double(), y.double()).sum()
        error.backward()
        return error

    optimizer.step(loss)
    return numbers.detach().float()


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    train, test = waves("waves", "train"), waves("waves-test", "valid")
    w, sign = (2 * torch.rand(STARTS) - 1) * 3**0.5, torch.randn(STARTS).sign()
    optimum = best(*train)
    there, here = (errors(optimum, *part).item() for part in (train, test))
    print(f"the best numbers for the training part: {there:.5f} there, {here:.5f} on the test part")
    mse = errors(learnt(torch.stack([w, sign, torch.zeros(STARTS)], 1), *train), *test)
    print(f"within 15 % of the printed {PRINTED}: {int((mse <= 1.15 * PRINTED).sum())} of {STARTS}")
    for u in (1, -1):
        for positive in (True, False):
            own = mse[(sign == u) & ((w > 0) == positive)].sort().values
            shown = ", ".join(f"{own[int(share * (len(own) - 1))]:.4f}" for share in (0, 0.25, 0.5, 0.75, 1))
            print(f"u = {u:+d}, w {'>' if positive else '<'} 0: {len(own)} starts, test MSE at the quarters {shown}")


if __name__ == "__main__":
    main()

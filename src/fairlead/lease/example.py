"""A small training job that can be stopped anywhere and continued elsewhere.

    python -m fairlead.lease.example --steps 400

It fits a linear classifier by gradient descent, and shows the three calls that make a script resumable.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairlead import lease

STEP_S = 0.01  # of a step on the fastest GPU: mostly sleep, so that many jobs can share a laptop


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small classifier.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    rng = np.random.default_rng(options.seed)
    x = rng.normal(size=(256, 16))
    y = (x @ rng.normal(size=16) > 0).astype(np.float64)
    weights, first = np.zeros(16), 0

    saved = lease.restore()
    if saved is not None:
        state = np.load(saved / "state.npz")
        weights, first = state["weights"], int(state["step"])
    print(f"from step {first} of {options.steps}", flush=True)

    for step in range(first, options.steps):
        began_s = time.monotonic()
        weights -= 0.1 * x.T @ (probabilities(x, weights) - y) / len(y)
        time.sleep(max(STEP_S - (time.monotonic() - began_s), 0.0))
        lease.report(step + 1)
        if lease.should_stop():
            print(f"stopped after step {step + 1}", flush=True)
            lease.stop(partial(save, weights, step + 1))
    # A job that was stopped after its last step has no step left, so nothing below may need one.
    print(f"done, loss {loss(x, y, weights):.6f}", flush=True)


def probabilities(x: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-x @ weights)))


def loss(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    probability = probabilities(x, weights)
    return float(-np.mean(np.log(np.where(y == 1, probability, 1 - probability))))


def save(weights: NDArray[np.float64], step: int, folder: Path) -> None:
    np.savez(folder / "state.npz", weights=weights, step=step)


if __name__ == "__main__":
    main()

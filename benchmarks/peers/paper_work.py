"""The paper's three experiments as work to measure: data's shapes, batches, arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLIENTS = 3
SAMPLES = 600


@dataclass(frozen=True)
class Experiment:
    """What is trained.

    Attributes:
        batch: samples per client and round.
        classes: labels.
        step: small enough for noise to be learned slowly, so that no number becomes denormal.
        products: multiply-adds of a sample's matrix products, forward.
        first: those among them with no slope in their input.
    """

    batch: int
    classes: int
    step: float
    products: int
    first: int

    @property
    def flops(self) -> float:
        """Of a round: 2 per multiply-add; forward, and backward for weights and for inputs."""
        return 2.0 * CLIENTS * self.batch * (3 * self.products - self.first)


_PIXELS = 28 * 28
EXPERIMENTS = {
    "cnn": Experiment(
        32,
        62,
        0.02,
        _PIXELS * 25 * 32 + _PIXELS // 4 * 800 * 64 + 3136 * 2048 + 2048 * 62,
        _PIXELS * 25 * 32,
    ),
    "lstm": Experiment(16, 80, 0.06, 80 * 1024 * (8 + 256 + 512) + 256 * 80, 0),
    "head": Experiment(32, 2, 0.02, 768 * 384 + 384 * 2, 768 * 384),
}


def client_data(name: str, client: int) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
    """600 samples: bytes of an image, token ids, or an encoder's output; labels follow them."""
    random = np.random.default_rng((7, client))
    labels = random.integers(EXPERIMENTS[name].classes, size=SAMPLES)
    if name == "cnn":
        x = random.integers(0, 128, (SAMPLES, 28, 28))
        x[np.arange(SAMPLES), labels % 28, :] += 64 * (labels[:, None] // 28)
        return x.astype(np.uint8), labels
    if name == "lstm":
        tokens = random.integers(80, size=(SAMPLES, 80))
        tokens[:, -1] = labels
        return tokens.astype(np.uint8), labels
    x = random.standard_normal((SAMPLES, 768))
    x[:, 0] += 2 * labels - 1
    return x.astype(np.float32), labels

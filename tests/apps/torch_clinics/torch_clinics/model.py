"""A small network with BatchNorm, and each clinic's patients."""

import torch
from torch import nn
from torch.utils.data import TensorDataset


def network() -> nn.Module:
    """Thirteen measurements, sixteen hidden units, one diagnosis."""
    return nn.Sequential(nn.Linear(13, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))


def patients(number: int, part: str) -> TensorDataset:
    """The data of a clinic, from a generator of its own."""
    own = torch.Generator().manual_seed(2 * number + (part == "test"))
    x = torch.randn(60 + 30 * number, 13, generator=own)
    rule = torch.linspace(-1, 1, 13) + 0.4 * number
    noise = torch.randn(len(x), generator=own)
    return TensorDataset(x, (x @ rule + noise > 0).float())

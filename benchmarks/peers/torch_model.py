"""The work's models and batches in PyTorch, for the peers that train with it."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import torch
from torch import nn
from work import BATCH, LEARNING_RATE, MODELS, client_data, initial_parameters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from work import Parameters


def build(model: str, seed: int) -> nn.Sequential:
    """The model, with the work's starting point in it."""
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for name, shape in MODELS[model].shapes.items():
        if name.startswith("conv"):
            layers[name] = nn.Conv2d(shape[1], shape[0], shape[2], padding=2)
            layers[f"{name}_relu"] = nn.ReLU()
            layers[f"{name}_pool"] = nn.MaxPool2d(2)
        else:
            if name == "linear1":
                layers["flatten"] = nn.Flatten()
            layers[name] = nn.Linear(shape[1], shape[0])
            layers[f"{name}_relu"] = nn.ReLU()
    layers.popitem()  # no ReLU after the last layer
    module = nn.Sequential(layers)
    start = initial_parameters(model, seed)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in start.items()})
    return module


def optimizer(module: nn.Module, model: str) -> torch.optim.SGD:
    """SGD at the work's rate; weight decay is the gradient of its L2 term."""
    return torch.optim.SGD(module.parameters(), LEARNING_RATE, weight_decay=MODELS[model].l2)


def data(model: str, client: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = client_data(model, client, seed)
    return torch.from_numpy(x), torch.from_numpy(y)


def batches(samples: int, protocol: str, generator: torch.Generator) -> Iterable[torch.Tensor]:
    """The indices of the batches that a client uses in one round."""
    if protocol == "fedsgd":
        return (torch.randint(samples, (BATCH,), generator=generator),)
    return torch.randperm(samples, generator=generator).split(BATCH)


def parameters(module: nn.Module) -> Parameters:
    return {name: value.detach().numpy() for name, value in module.state_dict().items()}

"""Peer: the paper's models in PyTorch, FedSGD as a plain loop over the clients.

Autograd adds up the clients' gradients; no client's gradient is kept apart, no norm computed. With
`--recording` the loop does what the simulator does: each client's gradient is taken by itself, its
loss and all inner products are kept, and the step is along the mean.
"""

from __future__ import annotations

import argparse
import json

import torch
from harness import Stopwatch, peak_rss_mb
from paper_work import CLIENTS, EXPERIMENTS, SAMPLES, client_data
from torch import nn
from torch.nn.functional import cross_entropy


class Text(nn.Module):
    """Embedding, two LSTM layers, and a linear layer on the last output."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(80, 8)
        self.lstm = nn.LSTM(8, 256, 2, batch_first=True)
        self.linear = nn.Linear(256, 80)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.linear(self.lstm(self.embedding(tokens))[0][:, -1])


def build(name: str) -> nn.Module:
    if name == "lstm":
        return Text()
    if name == "head":
        return nn.Sequential(nn.Linear(768, 384), nn.ReLU(), nn.Linear(384, 2))
    convolutions = [
        layer
        for channels, filters in ((1, 32), (32, 64))
        for layer in (nn.Conv2d(channels, filters, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2))
    ]
    dense = [nn.Flatten(), nn.Linear(3136, 2048), nn.ReLU(), nn.Linear(2048, 62)]
    return nn.Sequential(*convolutions, *dense)


def data(name: str, client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """In the type that the model takes, so that no round has to convert."""
    x, y = client_data(name, client)
    inputs = torch.from_numpy(x)
    if name == "cnn":
        inputs = inputs[:, None].float() / 255
    return inputs.long() if name == "lstm" else inputs, torch.from_numpy(y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=list(EXPERIMENTS), required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--recording", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    work, model = EXPERIMENTS[options.model], build(options.model)
    sgd = torch.optim.SGD(model.parameters(), work.step)
    clients = [data(options.model, client) for client in range(CLIENTS)]

    def one_round() -> None:
        sgd.zero_grad()
        for x, y in clients:
            batch = torch.randint(SAMPLES, (work.batch,))
            (cross_entropy(model(x[batch]), y[batch]) / CLIENTS).backward()
        sgd.step()

    records: list[tuple[torch.Tensor, torch.Tensor]] = []

    def recorded_round() -> None:
        values, messages = [], []
        for x, y in clients:
            batch = torch.randint(SAMPLES, (work.batch,))
            value = cross_entropy(model(x[batch]), y[batch])
            gradient = torch.autograd.grad(value, list(model.parameters()))
            values.append(value.detach())
            messages.append(torch.cat([part.reshape(-1) for part in gradient]))
        sent = torch.stack(messages)
        records.append((sent @ sent.T, torch.stack(values)))
        mean = sent.mean(0).split([p.numel() for p in model.parameters()])
        for parameter, part in zip(model.parameters(), mean, strict=True):
            parameter.grad = part.view_as(parameter)
        sgd.step()

    def loss() -> float:
        with torch.no_grad():
            return sum(cross_entropy(model(x), y).item() for x, y in clients) / CLIENTS

    step = recorded_round if options.recording else one_round
    before = loss()
    for _ in range(3):
        step()
    stopwatch, rounds = Stopwatch(), 0
    stopwatch.start()
    while stopwatch.seconds() < options.seconds:
        step()
        rounds += 1
    timing = stopwatch.stop(rounds)
    line = {
        "rate": timing.rounds / timing.cpu_seconds,
        "setup": timing.setup_seconds,
        "memory_mb": peak_rss_mb(),
        "loss": (before, loss()),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()

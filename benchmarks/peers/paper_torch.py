"""Peer: the paper's models in PyTorch, FedSGD as a plain loop over the clients, three ways.

`pooled`: autograd adds the clients' gradients up, so that nobody ever holds one client's update.
`apart`: each client's gradient is taken by itself, as a server receives it, and then added to the
model. `recording`: as the simulator does, losses and all inner products are kept, too.
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
    parser.add_argument("--loop", choices=["pooled", "apart", "recording"], default="pooled")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    work, model = EXPERIMENTS[options.model], build(options.model)
    sgd = torch.optim.SGD(model.parameters(), work.step)
    clients = [data(options.model, client) for client in range(CLIENTS)]
    parameters = list(model.parameters())

    def value_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        batch = torch.randint(SAMPLES, (work.batch,))
        return cross_entropy(model(x[batch]), y[batch])

    def pooled() -> None:
        sgd.zero_grad()
        for x, y in clients:
            (value_of(x, y) / CLIENTS).backward()
        sgd.step()

    def apart() -> None:
        messages = [torch.autograd.grad(value_of(x, y), parameters) for x, y in clients]
        with torch.no_grad():  # message by message, in place: faster than to write their mean first
            for parameter, *own in zip(parameters, *messages, strict=True):
                for part in own:
                    parameter.add_(part, alpha=-work.step / CLIENTS)

    records: list[tuple[torch.Tensor, torch.Tensor]] = []

    def recording() -> None:
        values, messages = [], []
        for x, y in clients:
            value = value_of(x, y)
            gradient = torch.autograd.grad(value, parameters)
            values.append(value.detach())
            messages.append(torch.cat([part.reshape(-1) for part in gradient]))
        sent = torch.stack(messages)
        records.append((sent @ sent.T, torch.stack(values)))
        mean = sent.mean(0).split([p.numel() for p in parameters])
        for parameter, part in zip(parameters, mean, strict=True):
            parameter.grad = part.view_as(parameter)
        sgd.step()

    def loss() -> float:
        with torch.no_grad():
            return sum(cross_entropy(model(x), y).item() for x, y in clients) / CLIENTS

    step = {"pooled": pooled, "apart": apart, "recording": recording}[options.loop]
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

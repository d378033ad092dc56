"""Peer: a plain PyTorch loop over the clients, with no framework in between.

This is what a competent user writes in an afternoon: one model, the data in memory, no reading
back of losses. FedSGD lets autograd add up the clients' gradients, each divided by their number,
and steps once; it keeps no client's gradient apart.
"""

from __future__ import annotations

import torch
import torch_model
from harness import measure, parse_task, peak_rss_mb, report
from torch.nn.functional import cross_entropy


def main() -> None:
    task = parse_task(__doc__)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(task.seed)
    model = torch_model.build(task.model, task.seed)
    sgd = torch_model.optimizer(model, task.model)
    clients = [torch_model.data(task.model, client, task.seed) for client in range(task.clients)]

    def fedsgd_round() -> None:
        sgd.zero_grad()
        for x, y in clients:
            for batch in torch_model.batches(len(y), "fedsgd", generator):
                loss = cross_entropy(model(x[batch]), y[batch])
                (loss / len(clients)).backward()
        sgd.step()

    def fedavg_round() -> None:
        start = {name: value.clone() for name, value in model.state_dict().items()}
        mean = {name: torch.zeros_like(value) for name, value in start.items()}
        for x, y in clients:
            model.load_state_dict(start)
            for batch in torch_model.batches(len(y), "fedavg", generator):
                sgd.zero_grad()
                cross_entropy(model(x[batch]), y[batch]).backward()
                sgd.step()
            for name, value in model.state_dict().items():
                mean[name].add_(value, alpha=1 / len(clients))
        model.load_state_dict(mean)

    timing = measure(task, fedsgd_round if task.protocol == "fedsgd" else fedavg_round)
    report(
        "plain_torch",
        torch.__version__,
        task,
        timing,
        torch_model.parameters(model),
        rss_mb=peak_rss_mb(),
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()

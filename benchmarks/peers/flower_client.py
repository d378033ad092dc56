"""The ClientApp of the Flower peer, as in Flower's PyTorch quickstart.

It is a module of its own because Ray's workers must import it: an app defined in the script itself
would be pickled with each message, and what a worker keeps between messages would be lost. A
competent user keeps the partition and the model, and so do we.
"""

from __future__ import annotations

from functools import cache

import torch
import torch_model
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

app = ClientApp()
load_data = cache(torch_model.data)
load_model = cache(torch_model.build)


@cache
def random_generator(seed: int, client: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed + client)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the received model on this client's partition and send it back."""
    torch.set_num_threads(1)
    config = message.content["config"]
    name, protocol, seed = config["model"], config["protocol"], config["seed"]
    client = context.node_config["partition-id"]
    x, y = load_data(name, client, seed)
    model = load_model(name, seed)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    sgd = torch_model.optimizer(model, name)
    for batch in torch_model.batches(len(y), protocol, random_generator(seed, client)):
        sgd.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()
        sgd.step()
    arrays, metrics = ArrayRecord(model.state_dict()), MetricRecord({"num-examples": len(y)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

"""One epoch of SGD with momentum over a shuffled DataLoader."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import binary_cross_entropy_with_logits as loss_of
from torch.utils.data import DataLoader

from torch_clinics.model import network, patients

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    config = context.run_config
    net, data = network(), patients(context.node_config["partition-id"], "train")
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=config["lr"], momentum=0.9)
    for x, y in DataLoader(data, batch_size=config["batch"], shuffle=True):
        optimiser.zero_grad()
        loss = loss_of(net(x).squeeze(1), y)
        loss.backward()
        optimiser.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(data)})
    content = {"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


def samples(context: Context):
    """What a clinic trains on, to which it commits for spot checks."""
    return patients(context.node_config["partition-id"], "train")


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    net = network()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    net.eval()
    x, y = patients(context.node_config["partition-id"], "test").tensors
    with torch.no_grad():
        score = net(x).squeeze(1)
    right = ((score > 0) == (y > 0.5)).float().mean().item()
    metrics = {"eval_loss": loss_of(score, y).item(), "eval_acc": right, "num-examples": len(x)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

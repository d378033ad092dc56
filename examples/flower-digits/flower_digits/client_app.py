"""A member: it trains on its own digits. Its training code does not depend on payments.

The mods are optional: `signed` signs what is sent and `prescribed` makes it repeatable if the terms
ask for it, `identified` tells the server which member a simulated node is, `misreport` replaces the
true update if the run's configuration says so, and `record_updates` records the norms of the
updates that are sent.
"""

import time

from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_digits.task import evaluate, from_record, load, protocol_of, to_record, train
from verax.flower import identified, misreport, prescribed, record_updates, signed

app = ClientApp(mods=[signed(), identified, record_updates(), prescribed(), misreport()])


@app.train()
def train_(message: Message, context: Context) -> Message:
    """One round of local training."""
    config, client, task = context.run_config, *_own(context)
    time.sleep(float(config["pause"]))
    params = from_record(task, message.content["arrays"])
    round_ = message.content["config"]["server-round"]
    after, loss = train(task, client, params, protocol_of(config), round_, config["seed"])
    examples = len(task.train[client][0])
    metrics = MetricRecord({"train-loss": loss, "num-examples": examples})
    return Message(RecordDict({"arrays": to_record(after), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_(message: Message, context: Context) -> Message:
    """Evaluate the model on the member's own test data."""
    client, task = _own(context)
    loss, accuracy = evaluate(task, client, from_record(task, message.content["arrays"]))
    examples = len(task.test[client][0])
    metrics = {"loss": loss, "accuracy": accuracy, "num-examples": examples}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)


def samples(context: Context):
    """The digits that the member trains on, to which it commits for spot checks."""
    client, task = _own(context)
    return task.train[client]


def _own(context: Context):
    client = int(context.node_config["partition-id"])
    clients = int(context.node_config["num-partitions"])
    return client, load(context.run_config["model"], clients)

"""A federation in one process: a Grid that calls its clients, with no Ray and no sockets."""

import copy
import itertools

import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from verax.mechanism import Price, Terms


def key_pem(number):
    """A public key that depends on the number alone."""
    key = ec.derive_private_key(1000 + number, ec.SECP384R1()).public_key()
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def nodes(count, *, names=True, first=11):
    """Authenticated nodes `client-0`, …; without names, nodes as a simulation has them."""
    return [
        NodeInfo(
            node_id=first + i,
            public_key=key_pem(i) if names else b"random bytes of a simulation",
            name=f"client-{i}" if names else None,
        )
        for i in range(count)
    ]


class LocalGrid(Grid):
    """Calls `client(position, request)` for each request; it returns a reply, several, or None."""

    def __init__(self, infos, client, *, run_id=7, order=None):
        self.infos, self.client, self.order = list(infos), client, order
        self._run = Run.create_empty(run_id)
        self._ids = itertools.count(1)
        self.late = []
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, 1, 1

    def set_run(self, run):
        self._run = run

    @property
    def run(self):
        return self._run

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return [info.node_id for info in self.infos]

    def get_nodes(self):
        return list(self.infos)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if not messages:
            return []
        position = {info.node_id: i for i, info in enumerate(self.infos)}
        replies, self.late = self.late, []
        messages = sorted(messages, key=lambda m: position[m.metadata.dst_node_id])
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"message {next(self._ids)}"
            request = Message(content=copy.deepcopy(message.content), metadata=message.metadata)
            found = self.client(position[message.metadata.dst_node_id], request)
            replies += found if isinstance(found, list) else [] if found is None else [found]
        if self.order is not None:
            self.order(replies)
        return replies


def model(dtype=np.float32, size=20_000, seed=0):
    """A model with an odd number of parameters in arrays of several shapes."""
    rng = np.random.default_rng(seed)
    return ArrayRecord(
        {
            "layer.weight": Array(rng.standard_normal((size // 100, 100)).astype(dtype)),
            "layer.bias": Array(rng.standard_normal(37).astype(dtype)),
            "scale": Array(np.array(0.5, dtype=dtype)),
        }
    )


def step(i, t, arrays, size=1e-2):
    """What client i makes of the model in round t: depends on nothing else."""
    rng = np.random.default_rng([i, t])
    return {
        name: array + ((1 + i) * size * rng.standard_normal(array.shape)).astype(array.dtype)
        for name, array in arrays.items()
    }


def numpy_of(record):
    return {name: array.numpy() for name, array in record.items()}


def record_of(arrays):
    return ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})


def training(request):
    return request.metadata.message_type == "train"


def reply_to(request, arrays, **metrics):
    metrics = {"num-examples": 10, "train_loss": 0.5} | metrics
    given = {key: value for key, value in metrics.items() if value is not None}
    content = RecordDict({"metrics": MetricRecord(given)})
    if arrays is not None:
        content["arrays"] = record_of(arrays)
    return Message(content, reply_to=request)


def round_of(request):
    return request.content["config"]["server-round"]


class Honest:
    """Clients that train by `step`, with the example counts given; `sent` keeps what they saw."""

    def __init__(self, examples=(10, 20, 30, 40, 50, 60, 70), size=1e-2):
        self.examples, self.size = examples, size
        self.seen = {}  # (client, round) → (model received, model sent)

    def train(self, i, request):
        t = round_of(request)
        before = numpy_of(request.content["arrays"])
        after = step(i, t, before, self.size)
        self.seen[i, t] = before, after
        return reply_to(request, after, **{"num-examples": self.examples[i]})

    def __call__(self, i, request):
        if training(request):
            return self.train(i, request)
        return reply_to(request, None, loss=float(i), train_loss=None)

    def norm(self, i, t):
        """‖reply − sent‖², in the plainest way there is."""
        before, after = self.seen[i, t]
        return sum(
            float(np.sum((after[k].astype(np.longdouble) - before[k].astype(np.longdouble)) ** 2))
            for k in before
        )


class But(Honest):
    """Honest, but one client does something else: `other(request, arrays after training)`."""

    def __init__(self, who, other, **kwargs):
        super().__init__(**kwargs)
        self.who, self.other = who, other

    def train(self, i, request):
        honest = super().train(i, request)
        if i != self.who:
            return honest
        return self.other(request, self.seen[i, round_of(request)][1])


def terms(price=0.5, **kwargs):
    return Terms(Price.constant(price), **kwargs)


def context(partition=0, run_config=None, run_id=7):
    return Context(
        run_id, 11 + partition, {"partition-id": partition}, RecordDict(), run_config or {}
    )


def config():
    return ConfigRecord()

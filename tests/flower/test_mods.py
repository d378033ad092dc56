"""Mods of the client's side: misreports from the run's configuration, and a member's own record."""

import json
import logging
import random

import numpy as np
import pytest
from flwr.app import Array, Message, RecordDict
from flwr.clientapp import ClientApp

from verax.flower import misreport, record_updates
from verax.flower.local import LocalGrid
from verax.game import (
    Adaptive,
    Directional,
    Mixed,
    Reporting,
    Scale,
    ScaleAndNoise,
    Sender,
    Timed,
)
from verax.mechanism import Weights
from verax.verifier import verify

from .grid import context, model, nodes, numpy_of, reply_to, round_of, step, terms, training


class Apps:
    """A ClientApp per member, with the mods of its side."""

    def __init__(self, mods, run_config, clients=3):
        self.config = run_config
        self.contexts = [context(i, run_config) for i in range(clients)]
        self.app = ClientApp(mods=mods)
        self.seen = {}

        @self.app.train()
        def train(request, now):
            i, t = now.node_config["partition-id"], round_of(request)
            before = numpy_of(request.content["arrays"])
            self.seen[i, t] = before, step(i, t, before)
            return reply_to(request, self.seen[i, t][1])

        @self.app.evaluate()
        def evaluate(request, now):
            return reply_to(request, None, loss=1.0, train_loss=None)

    def __call__(self, i, request):
        return self.app(request, self.contexts[i])

    def update(self, i, t):
        """The true update of a round, one array for each array of the model."""
        before, after = self.seen[i, t]
        return [after[k].astype(float) - before[k] for k in before]


def equal(**kwargs):
    return terms(weights=Weights("equal"), **kwargs)


def sent_norm(apps, ran, i, t=1):
    return ran.column("statistics", t)[f"client-{i}"]


@pytest.mark.parametrize(
    "config",
    [
        {"misreport-scale": 3.0, "misreport-partition": 1},
        {"misreport": Scale(3).text, "misreport-partition": 1},
    ],
)
def test_one_member_scales_by_three(config, run):
    apps = Apps([misreport()], config)
    ran = run(apps, agreed=equal())
    for i, factor in enumerate((1, 9, 1)):
        wanted = factor * squared(apps.update(i, 1))
        assert sent_norm(apps, ran, i) == pytest.approx(wanted, rel=1e-5)


def test_a_run_that_sets_nothing_is_left_as_it_is(run):
    plain = run(Apps([], {}), agreed=equal(), federation="plain")
    ran = run(Apps([misreport()], {}), agreed=equal())
    assert ran.column("statistics") == plain.column("statistics")


class Follower(Reporting):
    """Adds half of its last message and a part of the last aggregate to its update."""

    def start(self, update):
        return {"last": [0 * layer for layer in update]}

    def message(self, update, seen):
        parts = zip(update, seen.memory["last"], seen.last_aggregate, strict=True)
        message = [g + 0.5 * own - 0.2 * moved for g, own, moved in parts]
        return message, {"last": message}


def squared(layers):
    return sum(float(np.sum(layer**2)) for layer in layers)


@pytest.mark.parametrize(
    "lie",
    [
        ScaleAndNoise(1.5, 2.0),
        Mixed((2.0, 3.0), (0.0, 0.0), (0.5, 0.5)),
        Timed(2.0, 0.5, 0.5),
        Adaptive(2.0, drift=1.0, feedback=0.5),
        Directional(2.0, 0.7),
        Follower(),
    ],
    ids=lambda lie: type(lie).__name__,
)
def test_every_reporting_is_sent_with_its_memory_and_the_last_aggregate(run, lie):
    rounds = 3
    config = {"misreport": lie.text, "misreport-partition": 0, "num-server-rounds": rounds}
    apps = Apps([misreport()], config)
    ran = run(apps, agreed=equal(), rounds=rounds)
    sender, memory, moved = Sender(lie, rounds, 0), None, None
    for t in range(1, rounds + 1):
        if t > 1:
            now, then = apps.seen[0, t][0], apps.seen[0, t - 1][0]
            moved = [now[k].astype(float) - then[k] for k in now]
        message, memory = sender.send(t, apps.update(0, t), memory, moved)
        assert sent_norm(apps, ran, 0, t) == pytest.approx(squared(message), rel=1e-4)


def test_a_reporting_given_in_python_and_one_that_is_no_reporting(run, caplog):
    apps = Apps([misreport(Scale(0))], {"misreport-partition": 2})
    ran = run(apps, agreed=equal())
    assert sent_norm(apps, ran, 2) == 0
    with pytest.raises(ValueError, match="must be one of"):
        run(Apps([misreport()], {"misreport": '{"kind": "shout"}'}), agreed=equal(), run="x")


def test_a_members_own_record_verifies_its_statement(run, tmp_path):
    folder = tmp_path / "norms"
    config = {
        "record-updates": str(folder),
        "misreport-scale": 3.0,
        "misreport-partition": 0,
        "run-name": "spring",
    }
    ran = run(Apps([record_updates(), misreport()], config), rounds=2, run="spring")
    assert len((folder / "0.jsonl").read_text().splitlines()) == 2
    for i in range(3):
        found = verify(tmp_path / "book.db", mine=folder / f"{i}.jsonl", member=f"client-{i}")
        assert found.ok, found.findings
    # A book that says otherwise is found out.
    lines = [json.loads(line) for line in (folder / "0.jsonl").read_text().splitlines()]
    lines[1]["norm"] *= 1.01
    (folder / "0.jsonl").write_text("\n".join(map(json.dumps, lines)))
    wrong = verify(tmp_path / "book.db", mine=folder / "0.jsonl", member="client-0")
    assert [finding.kind for finding in wrong.findings] == ["mine"]
    assert ran.paid.run == "spring"


def counting(request, _, call_next):
    """A mod in the place of BatchNorm: the reply counts batches, as integers."""
    reply = call_next(request, _)
    if training(request):
        count = np.array(7 * round_of(request), dtype=np.int64)
        reply.content["arrays"]["bn.num_batches_tracked"] = Array(count)
    return reply


def test_mods_leave_out_what_is_not_charged(run, tmp_path):
    folder = tmp_path / "norms"
    config = {"record-updates": str(folder), "misreport": Adaptive(2.0, 1.0, 0.5).text}
    config |= {"misreport-partition": 0, "run-name": "spring", "num-server-rounds": 3}
    arrays = model()
    arrays["bn.num_batches_tracked"] = Array(np.array(0))
    apps = Apps([record_updates(), misreport(), counting], config)
    ran = run(apps, rounds=3, run="spring", arrays=arrays)
    assert not ran.content(3)["statuses"]
    for i in range(3):
        found = verify(tmp_path / "book.db", mine=folder / f"{i}.jsonl", member=f"client-{i}")
        assert found.ok, found.findings


def test_nothing_is_kept_unless_asked_for(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {p.name for p in tmp_path.iterdir()}
    run(Apps([record_updates()], {}))
    after = {p.name for p in tmp_path.iterdir()}
    assert after - before <= {"book.db", "book.db-wal", "book.db-shm"}


def test_the_names_of_nodes_do_not_matter_to_mods(run, caplog):
    caplog.set_level(logging.WARNING, "flwr")
    apps = Apps([misreport()], {"misreport-noise": 0.5})
    ran = run(apps, infos=nodes(3, names=False), agreed=equal())
    for i in range(3):
        message, _ = Sender(ScaleAndNoise(1.0, 0.5), 1, seed=i).send(1, apps.update(i, 1))
        booked = ran.column("statistics")[f"node {11 + i}"]
        assert booked == pytest.approx(squared(message), rel=1e-4)
        assert booked != pytest.approx(squared(apps.update(i, 1)), rel=1e-3)


def test_seeded_rounds_differ_where_messages_do_not_tell_the_round():
    """A strategy of one's own need not write "server-round": training exchanges are counted."""
    drawn = []
    app = ClientApp()

    @app.train()
    def train(message, context):
        drawn.append(random.random())
        return Message(RecordDict(), reply_to=message)

    for _ in range(2):
        grid = LocalGrid(app, 1, seed=3)
        for _ in range(2):
            request = Message(RecordDict(), dst_node_id=100, message_type="train")
            list(grid.send_and_receive([request]))
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]

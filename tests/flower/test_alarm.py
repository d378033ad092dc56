"""The alarm: sudden changes raise it; steady differences, common trends and noise do not."""

import logging

import numpy as np

from verax.flower.alarm import Alarm
from verax.mechanism import Weights

from .grid import Honest, numpy_of, reply_to, terms

NAMES = [f"m{i}" for i in range(5)]


def history(rounds, seed=0, noise=0.3):
    """Norms that fall over the rounds, differ between members, and scatter."""
    rng = np.random.default_rng(seed)
    for t in range(rounds):
        level = np.exp(-0.05 * t) * 4.0 ** np.arange(5)
        scatter = np.exp(noise * rng.standard_normal(5))
        yield dict(zip(NAMES, level * scatter, strict=True))


def test_honest_rounds_raise_next_to_none():
    alarms = 0
    for seed in range(6):
        alarm = Alarm()
        alarms += sum(len(alarm.update(norms)) for norms in history(100, seed))
    assert alarms <= 3  # of 3 000 norms


def test_nine_times_the_norm_is_seen_where_noise_is_small():
    alarm = Alarm()
    *before, last = history(31, noise=0.1)
    for norms in before:
        assert not alarm.update(norms)
    last["m2"] *= 9
    found = alarm.update(last)
    assert list(found) == ["m2"]
    assert "times its usual squared norm" in found["m2"]


def test_no_alarm_before_there_is_a_history():
    alarm = Alarm()
    for _ in range(4):
        assert not alarm.update({"a": 1.0, "b": 1.0, "c": 1.0})
    assert not alarm.update({"a": 1.0, "b": 1.0})
    assert list(alarm.update({"a": 50.0, "b": 1.0, "c": 1.0})) == ["a"]


def test_zero_and_lone_norms_are_passed_over():
    alarm = Alarm(fewest=1)
    assert alarm.update({"a": 0.0, "b": 1.0}) == {}
    assert alarm.update({}) == {}


def test_a_strategy_raises_it_in_log_and_metrics_also_after_a_restart(run, caplog, tmp_path):
    class Jumping(Honest):
        def train(self, i, request):
            reply = super().train(i, request)
            t = request.content["config"]["server-round"]
            if i != 1 or t < 8:
                return reply
            before, after = self.seen[i, t]
            return reply_to(request, {k: before[k] + 4 * (after[k] - before[k]) for k in before})

    caplog.set_level(logging.WARNING, "flwr")
    agreed = terms(weights=Weights("equal"))
    kwargs = {"agreed": agreed, "run": "spring", "checkpoints": tmp_path / "kept"}
    run(Jumping(), rounds=7, **kwargs)
    assert "ALARM" not in caplog.text
    ran = run(Jumping(), rounds=8, **kwargs)
    assert "ALARM: client-1 sent 1" in caplog.text
    assert caplog.text.count("ALARM") == 1
    assert ran.result.train_metrics_clientapp[8]["verax.alarms"] == 1
    assert numpy_of(ran.result.arrays)

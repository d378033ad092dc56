"""A whole audit: what it judges, writes, and refuses."""

import json
import shutil
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

from tests.audit.conftest import RESCALINGS, SMALL
from verax.audit import Plan, audit
from verax.audit.judge import judge, propose
from verax.audit.judge.payments import RulePayments
from verax.audit.plan.task import task_of
from verax.audit.run.simulated import TaskSubject
from verax.game import Quadratics, ScaleAndNoise, Stretch
from verax.learning import Krum, Task
from verax.mechanism import (
    GrovesLedyard,
    SquaredDistance,
    SquaredNorm,
    Statistics,
    Terms,
    charge,
    pay,
)
from verax.memory import memory_of
from verax.tasks import quadratics


class TestSummary:
    def test_a_script_can_compute_every_gain(self, small):
        """The documented fields suffice, and windows follow from them."""
        found = json.loads((small.folder / "audit.json").read_text())
        assert found == json.loads(json.dumps(small.summary))
        for client in found["clients"]:
            assert {w["schedule"] for w in client["windows"]} == set(found["schedules"])
            for window in client["windows"]:
                gain = np.array([d["reward_gain"]["mean"] for d in client["deviations"]])
                rise = np.array(
                    [d["payment_rise"][window["schedule"]] for d in client["deviations"]]
                )
                if window["low"] is None:
                    assert window["reason"]
                    continue
                high = window["high"] if window["high"] is not None else window["low"] * 2 + 1
                others = np.array([d["others_gain"]["mean"] for d in client["deviations"]])
                for price in np.linspace(window["low"] * (1 + 1e-9), high * (1 - 1e-9), 7):
                    gains = gain - price * rise > client["tolerance"]
                    harms = others + price * rise < -client["others_tolerance"]
                    assert not np.any(gains & harms)
        assert found["window"] is None or found["window"]["schedule"] in found["schedules"]

    def test_constant_and_timed_deviations_are_described(self, small):
        rows = {d["label"]: d for d in small.summary["clients"][0]["deviations"]}
        assert rows["scale 5"]["a_early"] == rows["scale 5"]["a_late"] == 5
        assert rows["scale 5"]["switch_round"] is None
        late = rows["scale 5 in the last 2 rounds"]
        assert (late["a_early"], late["a_late"], late["switch_round"]) == (1, 5, 39)
        assert rows["noise 0.5"]["b"] == 0.5
        assert rows["scale 1.5 turned by 28.65°"]["a_early"] is None
        assert rows["scale 5"]["steering"] is not None
        assert set(rows["scale 5"]["harm"]) == {"1", "2"}

    def test_rules_and_robust_aggregators_stand_side_by_side(self, small):
        names = [row["name"] for row in small.summary["rules"]]
        kinds = ("constant", "discounted", "common profile", "profile")
        assert names[:4] == [f"squared-norm, {kind}" for kind in kinds]
        assert {
            "squared-norm, common profile",
            "groves-ledyard, discounted",
            "groves-ledyard, profile",
            "spot-audit, discounted",
            "no payment",
            "no payment, median",
        } <= set(names)
        worst = {row["name"]: row["worst_gain"] for row in small.summary["rules"]}
        assert worst["squared-norm, profile"] <= worst["no payment"]
        assert worst["squared-norm, discounted"] <= worst["squared-norm, constant"] + 1e-9

    def test_what_was_not_tried_is_said(self, small):
        assert any("deviating together" in line for line in small.summary["not_tried"])
        price, hole = small.summary["verdict"][:2]
        assert "against the misreports tried" in price
        assert "full batch sends less noise" in hole
        assert small.summary["verdict"][-1].startswith("Advice: the step is small")
        assert "safe" not in json.dumps(small.summary)


class TestRecord:
    @pytest.mark.parametrize("rule", [SquaredDistance(), GrovesLedyard()], ids=lambda r: r.name)
    def test_rules_on_distances_need_no_gram_matrix(self, small, rule):
        """Of many clients norms and distances alone are recorded: the payments are the same."""
        evidence = small.judgement.evidence
        whole = RulePayments(rule, evidence).rises()
        n = SMALL.task.clients
        apart = np.eye(n) - 1 / n  # row i: m_i − mean of all

        def shortened(run):
            gram = run.statistics.gram.astype(float)
            distances = np.einsum("ij,tjk,ik->ti", apart, gram, apart)
            return replace(run, statistics=Statistics(run.statistics.norms, None, distances))

        short = replace(evidence, runs=[shortened(run) for run in evidence.runs])
        assert np.ptp(whole) > 0
        assert_allclose(RulePayments(rule, short).rises(), whole, atol=1e-5 * np.abs(whole).max())

    def test_payments_follow_from_the_tables_alone(self, small):
        """An independent computation of ΔP for one deviation from the Parquet files."""
        runs = pq.read_table(small.folder / "runs.parquet").to_pylist()
        rounds = pq.read_table(small.folder / "rounds.parquet")
        number, norms = rounds["run"].to_numpy(), np.array(rounds["squared_norm"].to_pylist())
        n = SMALL.task.clients

        rises = []
        for seed in SMALL.seeds.judging:
            mine = [r for r in runs if r["seed"] == seed and r["aggregator"] == ""]
            truth = next(r for r in mine if r["role"] == "honest")
            wanted = '{"kind": "scale-and-noise", "a": 5.0, "b": 0.0}'
            lie = next(
                r
                for r in mine
                if (r["role"], r["deviating_client"], r["reporting"]) == ("deviation", 1, wanted)
            )
            paid = [
                (m[:, 1] - (m.sum(axis=1) - m[:, 1]) / (n - 1)).sum()
                for m in (norms[number == run["run"]] for run in (lie, truth))
            ]
            rises.append(paid[0] - paid[1])
        rows = {d["label"]: d for d in small.summary["clients"][1]["deviations"]}
        assert rows["scale 5"]["payment_rise"]["constant"] == pytest.approx(
            np.mean(rises), rel=1e-4
        )
        assert rows["scale 5"]["payment_rise_by_seed"]["constant"] == pytest.approx(rises, rel=1e-4)

    def test_branched_runs_equal_runs_from_the_start(self, small):
        """With an evaluation every 10 rounds, a surge in the last 10 begins at an honest state."""
        plan = SMALL.changed(
            evaluate_every=10,
            surge_rounds=(10,),
            phases=(),
            robust=(),
            noises=(),
            reportings=(),
            scales=(1.0, 5.0),
            rules=("squared-norm",),
        )
        label = "scale 5 in the last 10 rounds"
        found = []
        for evidence, branch in (
            (audit(task_of(plan), plan).judgement.evidence, 30),
            (small.judgement.evidence, 0),
        ):
            d = evidence.labels.index(label)
            assert {run.run.branch for run in evidence.deviation_runs(0, d)} == {branch}
            found.append(evidence.gains[:, d])
        assert_allclose(*found, rtol=2e-3, atol=1e-5)

    def test_a_finished_plan_is_never_computed_twice(self, small):
        before = (small.folder / "rounds.parquet").stat().st_mtime_ns
        ticks = []
        again = audit(task_of(SMALL), SMALL, out=small.folder, progress=ticks.append)
        assert not ticks
        assert (small.folder / "rounds.parquet").stat().st_mtime_ns == before
        assert again.summary == small.summary

    @pytest.mark.parametrize("name", ["runs.parquet", "rounds.parquet"])
    @pytest.mark.parametrize("damage", ["truncated", "foreign"])
    def test_broken_tables_are_named(self, small, tmp_path, name, damage):
        folder = tmp_path / "copy"
        shutil.copytree(small.folder, folder)
        if damage == "truncated":
            content = (folder / name).read_bytes()
            (folder / name).write_bytes(content[: len(content) // 2])
        else:
            import pyarrow as pa

            pq.write_table(pa.table({"x": [1]}), folder / name)
        with pytest.raises(ValueError, match=f"{name.split('.')[0]}.*is not a table of an audit"):
            judge(SMALL, TaskSubject(task_of(SMALL)), folder)

    def test_a_folder_of_another_plan_or_data_is_refused(self, small, tmp_path):
        with pytest.raises(ValueError, match="audit of another plan; --again replaces it"):
            audit(task_of(SMALL), SMALL, rounds=41, out=small.folder)
        other = task_of(SMALL.changed(partition_seed=5))
        with pytest.raises(ValueError, match="audit of other data"):
            audit(other, SMALL, out=small.folder)
        (tmp_path / "note.txt").write_text("mine")
        with pytest.raises(ValueError, match="is not empty and holds no audit"):
            audit(task_of(SMALL), SMALL, out=tmp_path)
        with pytest.raises(ValueError, match="is a file"):
            audit(task_of(SMALL), SMALL, out=tmp_path / "note.txt")


class TestTerms:
    def test_proposed_terms_charge_and_expect_nothing_of_the_honest(self, small):
        terms = Terms.load(small.folder / "terms.toml")
        assert terms == small.terms
        paid = np.zeros(SMALL.task.clients)
        for run in small.judgement.evidence.runs:
            if run.run.role != "honest" or run.run.seed not in SMALL.seeds.judging:
                continue
            if run.run.aggregator:
                continue
            for t, norms in enumerate(run.statistics.norms):
                amounts = charge(terms, t + 1, Statistics(norms), ["ok"] * 3).amounts
                paid += amounts / SMALL.seeds.judge
        size = np.abs(small.judgement.best.honest.sum(axis=0)).max() * small.judgement.multiplier
        assert_allclose(paid, 0, atol=1e-4 * size)

    @pytest.mark.parametrize("kind", ["constant", "discounted", "profile"])
    def test_the_terms_charge_exactly_the_prices_that_were_judged(self, small, kind):
        judgement = replace(small.judgement)
        object.__setattr__(judgement, "best", judgement.schedules[kind])
        terms = propose(judgement)
        judged = judgement.multiplier * judgement.best.price.per_round()
        charged = np.stack([terms.price.at(t + 1) for t in range(SMALL.rounds)])
        assert_allclose(charged, np.broadcast_to(judged, charged.shape), rtol=1e-12)

    def test_comments_say_what_they_rest_on(self, small):
        text = (small.folder / "terms.toml").read_text()
        assert "set on 2 seeds, chosen on 1 others, judged on 3 further ones" in text
        assert "window" in text


def test_the_window_holds_the_exact_knife_edge_price():
    """Equal curvature at rest: for one client honesty is stationary at exactly one constant C.

    That price follows from the exact gradient of utility in a common scale of all rounds.
    """
    rng = np.random.default_rng(0)
    game = Quadratics.of([1.0, 1.0, 1.0, 1.0], rng.standard_normal((4, 2)))
    T, step = 30, 0.2
    start = game.optimum() + 0.4
    steps = np.full(T, step)
    gradient = {c: game.utility_gradient(0, start, steps, 1.0, c).sum() for c in (0.0, 1.0)}
    knife = gradient[0.0] / (gradient[0.0] - gradient[1.0])
    run = game.run(start, steps)
    assert pay(SquaredNorm(), run.norms).amounts.sum() == pytest.approx(0, abs=1e-9)
    found = audit(
        quadratics(game, start),
        **RESCALINGS,
        rounds=T,
        step=step,
        deviating=(0,),
        scales=(0.5, 0.9, 0.95, 1.0, 1.05, 1.1, 2.0),
        phases=(),
        surges=(),
        noises=(),
        setting_seeds=1,
        choosing_seeds=1,
        judging_seeds=2,
    )
    window = found.judgement.schedules["constant"].windows[0]
    assert knife in window
    exact = game.sensitivities(start, steps, found.judgement.plan.blocks)
    (probed,) = found.judgement.main.sensitivities
    # On quadratics a central difference of the reward has no error but that of float32.
    assert_allclose(probed.reward, exact.reward[:1], rtol=0.02, atol=2e-4)


def test_a_task_of_ones_own_goes_through_the_api(tmp_path):
    """Four clients of different size and balance, 13 features, a logistic model."""
    rng = np.random.default_rng(3)
    truth = rng.standard_normal(13)
    train, test = [], []
    for size, shift in ((200, 0.0), (120, 1.0), (60, -1.0), (40, 2.0)):
        x = rng.standard_normal((size, 13)) + 0.3 * shift
        y = (x @ truth + shift + rng.standard_normal(size) > 0).astype(float)
        cut = int(0.8 * size)
        train.append((x[:cut], y[:cut]))
        test.append((x[cut:], y[cut:]))

    def loss(params, batch):
        x, y = batch
        z = x @ params["w"] + params["b"]
        return jnp.mean(jnp.logaddexp(0.0, z) - y * z)

    task = Task(
        "tabular",
        train,
        test,
        lambda key: {"w": jnp.zeros(13), "b": jnp.zeros(())},
        loss,
        names=("north", "south", "east", "west"),
    )
    found = audit(
        task,
        **RESCALINGS | {"rules": ("squared-norm",)},
        rounds=10,
        step=0.5,
        scales=(0.5, 1.0, 3.0),
        phases=(),
        surges=(5.0,),
        surge_rounds=(1,),
        noises=(),
        setting_seeds=1,
        choosing_seeds=1,
        judging_seeds=2,
        out=tmp_path / "a",
    )
    assert [c["name"] for c in found.summary["clients"]] == ["north", "south", "east", "west"]
    assert (tmp_path / "a" / "report.html").stat().st_size > 10_000
    assert (
        len(found.draw(tmp_path / "figures")) == len(list((tmp_path / "figures").iterdir())) == 10
    )
    assert "gain" in str(found)
    assert found.terms.members == task.names


def test_honest_divergence_is_an_error_with_its_remedy():
    with pytest.raises(ValueError, match=r"honest training diverged.* lower the step"):
        audit(
            quadratics(Quadratics.of([5.0, 5.0], [0.0, 1.0]), [1.0]),
            **RESCALINGS,
            rounds=200,
            step=2.0,
            setting_seeds=1,
            choosing_seeds=1,
            judging_seeds=2,
            scales=(1.0, 2.0),
            phases=(),
            surges=(),
            noises=(),
        )


class TestPlan:
    def test_toml_round_trip(self):
        others = Plan.of(reward="group:0,0,1", deviating=(1,), phases=(), surges=(), noises=())
        for plan in (Plan(), SMALL, others):
            assert Plan.from_toml(plan.to_toml()) == plan
        assert Plan.of(worth=12_000).prices.worth == (12_000,)
        assert Plan.from_toml("[protocol]\nrounds = 7") == Plan.of(rounds=7)

    def test_what_is_tried_is_listed_once_and_ends_with_the_last_round(self):
        tried = Plan.of(rounds=10).tried
        assert len(tried) == len(set(tried))
        assert Stretch(5.0, 10, 10) in tried
        assert set(Plan().seeds.setting).isdisjoint(Plan().seeds.judging)

    def test_objects_are_kept_by_name(self):
        noisy = ScaleAndNoise(2, 3)
        plan = Plan.of(aggregator=Krum(1), rules=[GrovesLedyard()], reportings=[noisy])
        assert plan.protocol.aggregator == "krum:1"
        assert plan.prices.rules == ("groves-ledyard",)
        assert noisy in plan.tried

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"scales": ()}, "grid of scales is empty"),
            ({"scales": (0.5, 2.0)}, "lacks 1, which is honesty"),
            (
                {**RESCALINGS, "scales": (1.0,), "phases": (), "surges": (), "noises": ()},
                "nothing is tried",
            ),
            ({"floor": 1.0}, "floor is 1, must be at least 0 and below 1"),
            ({"epochs": 2, "protocol": "fedsgd"}, "epochs are 2, must be ≥ 0, and 0 for FedSGD"),
            ({"epochs": 2, "local_steps": 3}, "or where local steps are given"),
            ({"phases": ((1.0, 2.0),)}, "a phase is"),
            ({"clients": 1}, "clients is 1"),
            ({"rounds": -5}, "rounds is -5"),
            ({"rounds": 10**12}, "rounds is 1,000,000,000,000, must be 1 … 1,000,000"),
            ({"deviating": (3,)}, "client 3 does not exist"),
            ({"judging_seeds": 1}, "intervals need two"),
            ({"tolerance": 0.0}, "tolerance is 0"),
            ({"probe": 1.5}, "probe is 1.5"),
            ({"reward": "fame"}, "reward is 'fame'"),
            ({"reward": "group:0,1"}, "3 clients need as many group numbers"),
            ({"aggregator": "vote"}, "aggregator is 'vote', must be one of mean"),
            ({"aggregator": "krum"}, "aggregator is 'krum'"),
            ({"aggregator": "krum:9"}, "expects 9 liars, of 3 clients at most 1 can be"),
            ({"robust": ("clipped:x",)}, "aggregator is 'clipped:x'"),
            ({"robust": ("weighted-mean:1,2",)}, "2 weights for 3 clients"),
            ({"worth": (1.0, 2.0)}, "worth has 2 numbers for 3 clients, must have 1 or 3"),
            ({"worth": ()}, r"worth is \[\], must be finite numbers > 0"),
            ({"worth": (1.0, 0.0, 1.0)}, r"worth is \[1.0, 0.0, 1.0\], must be finite numbers"),
            ({"worth": (float("inf"),)}, r"worth is \[inf\], must be finite numbers"),
            ({"currency": " "}, "currency is empty, must be a label such as EUR"),
            ({"rules": ("vcg",)}, "rule is 'vcg', must be one of squared-norm"),
            ({"protocol": "gossip"}, "must be one of fedsgd, fedavg"),
            ({"evaluate_every": -1}, "evaluate-every is -1"),
            ({"reportings": ("{}",)}, "kind"),
            ({"colour": 1}, "unknown option 'colour'"),
        ],
    )
    def test_wrong_values(self, changes, message):
        with pytest.raises(ValueError, match=message):
            Plan.of(**changes)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("colour = 1", "unknown field colour"),
            ("[protocol]\ncolour = 1", "unknown field protocol.colour"),
            ("protocol = 1", "protocol must be a table"),
            ("[protocol]\nrounds = 1.5", "protocol.rounds must be a whole number"),
            ("[deviations]\nphases = [[1, 2]]", "a phase is"),
            ("[rounds", "not TOML"),
        ],
    )
    def test_wrong_files(self, text, message):
        with pytest.raises(ValueError, match=message):
            Plan.from_toml(text)

    def test_memory(self):
        assert memory_of("2G") == 2 * 2**30
        assert memory_of("1.5M") == 3 * 2**19
        for text in ("", "many", "-1G", "inf"):
            with pytest.raises(ValueError, match="memory is"):
                memory_of(text)

"""The paper's figures as plans: which task, protocol and misreports, and how much of each.

Every figure has three meta-clients of which the last one misreports, γ = 0.06, and curves of its
utility over the scale a (or the noise b at a = 1, 2, 3) for several prices. `paper` has the
horizons and the ten runs as printed; `laptop` and `smoke` shorten the horizon and run fewer. To the
paper's grid come what it does not have: under-reporting, timing, and the price profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verax.audit.plan.plan import Plan
from verax.game import ScaleAndNoise

#: Samples per gradient, as in the authors' code.
_BATCH = {"femnist": 32, "shakespeare": 16, "sent140": 32}


@dataclass(frozen=True)
class PaperFigure:
    """One figure: a protocol on a task."""

    name: str
    protocol: str
    task: str
    words: str

    @property
    def panels(self) -> int:
        """The paper draws noise at three scales, each in a panel of its own."""
        return len(NOISE_SCALES) if self.protocol == "noise" else 1


NOISE_SCALES = (1.0, 2.0, 3.0)

_WORDS = {
    "fedsgd": "utility over the scale a, FedSGD with the mean",
    "median": "utility over the scale a, FedSGD with the coordinate-wise median",
    "fedavg": "utility over the scale a, FedAvg with 3 local steps",
    "noise": "utility over the noise b at a = 1, 2, 3, FedSGD with the mean",
}

FIGURES = {
    f"{protocol}-{task}": PaperFigure(f"{protocol}-{task}", protocol, task, words)
    for protocol, words in _WORDS.items()
    for task in _BATCH
}


@dataclass(frozen=True)
class Preset:
    """How much of a figure is run.

    Attributes:
        rounds: T of each task.
        fedavg: FedAvg runs this part of the rounds, for it takes three steps in each.
        scales: the grid of a.
        noises: the grid of b.
        judging_seeds: runs whose mean and error are drawn.
        setting_seeds: other runs that set the price profile.
        surges: a in the last rounds.
        surge_rounds: how many last rounds.
        phases: early and late a, and where it switches.
        momenta: of a client that sends a moving average of its own updates.
        batches: of a client that averages over so many batches; 0: over all its samples.
        test_samples: judged by at most so many of each client; 0: by all.
    """

    rounds: dict[str, int]
    fedavg: float
    scales: tuple[float, ...]
    noises: tuple[float, ...]
    judging_seeds: int
    setting_seeds: int
    surges: tuple[float, ...]
    surge_rounds: tuple[int, ...]
    phases: tuple[tuple[float, float, float], ...]
    momenta: tuple[float, ...] = ()
    batches: tuple[int, ...] = ()
    test_samples: int = 0


PRESETS = {
    "smoke": Preset(
        rounds={"femnist": 2, "shakespeare": 2, "sent140": 20},
        fedavg=1.0,
        scales=(0.5, 1.0, 3.0),
        noises=(1.0,),
        judging_seeds=2,
        setting_seeds=1,
        surges=(5.0,),
        surge_rounds=(1,),
        phases=(),
        test_samples=64,
    ),
    "laptop": Preset(
        rounds={"femnist": 1_000, "shakespeare": 3_550, "sent140": 3_550},
        fedavg=1 / 4,
        scales=(0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0),
        noises=(1.0, 3.0, 10.0),
        judging_seeds=4,
        setting_seeds=2,
        surges=(5.0,),
        surge_rounds=(1, 20),
        phases=((0.5, 3.0, 0.5),),
        momenta=(0.9,),
        batches=(4,),
        test_samples=400,
    ),
    "paper": Preset(
        rounds={"femnist": 10_650, "shakespeare": 3_550, "sent140": 3_550},
        fedavg=1.0,
        scales=(0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0),
        noises=(0.5, 1.0, 2.0, 3.0, 5.0, 10.0),
        judging_seeds=10,
        setting_seeds=3,
        surges=(0.0, 2.0, 5.0, 10.0),
        surge_rounds=(1, 5, 20, 100, 500),
        phases=((0.5, 2.0, 0.5), (0.5, 5.0, 0.9), (0.0, 5.0, 0.9)),
        momenta=(0.9,),
        batches=(4,),
    ),
}


def plan_of(
    figure: PaperFigure, preset: Preset, data: str | Path, encoder: str | Path = "", split: str = ""
) -> Plan:
    """The plan that draws a figure.

    Args:
        figure: which.
        preset: how much of it.
        data: a folder that holds LEAF's folders femnist, shakespeare and sent140.
        encoder: for sent140.
        split: how LEAF's users become three clients; empty: shuffled, as in the paper.
    """
    plan = Plan.of(
        task=figure.task,
        data=str(Path(data) / figure.task),
        encoder=str(encoder) if figure.task == "sent140" else "",
        split=split,
        protocol="fedsgd",
        step=0.06,
        batch=_BATCH[figure.task],
        rounds=preset.rounds[figure.task],
        deviating=(2,),
        scales=preset.scales,
        phases=preset.phases,
        surges=preset.surges,
        surge_rounds=preset.surge_rounds,
        block_scales=(),
        absences=(),
        noises=(),
        momenta=preset.momenta,
        batches=preset.batches,
        quiet_scales=(1.0,),
        pushes=(),
        tilts=(),
        search="off",
        setting_seeds=preset.setting_seeds,
        choosing_seeds=1,
        judging_seeds=preset.judging_seeds,
        test_samples=preset.test_samples,
    )
    match figure.protocol:
        case "median":
            return plan.changed(aggregator="median")
        case "fedavg":
            rounds = round(plan.rounds * preset.fedavg)
            return plan.changed(protocol="fedavg", local_steps=3, rounds=rounds)
        case "noise":
            noisy = [ScaleAndNoise(a, b) for a in NOISE_SCALES for b in preset.noises]
            return plan.changed(scales=sorted({*NOISE_SCALES, 0.5}), reportings=noisy)
        case _:
            return plan

"""The check of one member, where its data are: every drawn round is computed again and compared.

The auditor runs it with the member's data, its app and the rounds that the member's mod kept
(`verax.flower.prescribing`). Nothing of them leaves the machine: the report holds squared distances
and norms.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ArrayRecord, RecordDict

from verax.apps.app import FlowerApp
from verax.flower.digest import record_digest
from verax.flower.prescribing import config_digest, kept_file, read_kept, seed_of
from verax.ledger import Book, SpotReport
from verax.ledger.records import OpeningRecord, RoundRecord
from verax.ledger.spot_booking import drawn_run, sign_report
from verax.ledger.state import Account
from verax.mechanism import squared_norms
from verax.mechanism.spot_checks import Outcome
from verax.spot.commitment import commit_app, commit_data, load_samples
from verax.spot.recompute import charged_arrays, context_of, update_of


@dataclass(frozen=True, eq=False)
class MemberFiles:
    """What a member shows to the auditor.

    Attributes:
        app: its app, with the configuration of the run.
        data: its samples, a path or a function of the app, `module:name`.
        kept: the folder of the rounds that its mod kept.
        node_config: the configuration of its node.
    """

    app: FlowerApp
    data: str
    kept: Path
    node_config: Mapping[str, Any]


class UncheckableError(Exception):
    """Why a member cannot be checked: an outcome and a sentence."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome: Outcome = outcome


def check_member(
    book: Book,
    federation: str,
    run: str,
    member: str,
    files: MemberFiles,
    key: Ed25519PrivateKey,
    progress: Callable[[int, float], None] | None = None,
) -> SpotReport:
    """Recompute a member's drawn rounds and sign a report.

    Args:
        book: with the draw.
        federation: its name.
        run: which training run.
        member: id or label.
        files: what the member shows.
        key: the auditor's.
        progress: called with each round and the seconds that it took.
    """
    state = book.state(federation)
    checked, account = drawn_run(state, run), state.member_account(member)
    try:
        if account.number not in checked.drawn:
            raise ValueError(f"no rounds of {member!r} are drawn in run {run!r}")
        _check_commitment(checked.commitments.get(account.number), files)
        found: list[tuple[int, str, str]] = []
        for round_ in sorted(set(checked.drawn[account.number])):
            begin = time.perf_counter()
            distance, norm = _recompute(book, federation, run, round_, account, files)
            found.append((round_, repr(distance), repr(norm)))
            if progress is not None:
                progress(round_, time.perf_counter() - begin)
        report = SpotReport(federation, run, account.member, "checked", found=tuple(found))
    except UncheckableError as error:
        report = SpotReport(federation, run, account.member, error.outcome, str(error))
    return sign_report(state, report, key)


def _check_commitment(committed: tuple[str, str] | None, files: MemberFiles) -> None:
    """The app and the data are those that the member committed to before the run."""
    if committed is None:
        raise UncheckableError("missing", "it made no commitment before its first round")
    data, app = committed
    if commit_app(files.app) != app:
        raise UncheckableError("mismatch", "its app or its configuration is not the committed one")
    samples = load_samples(files.data, files.app, context_of(files.app, files.node_config))
    if commit_data(samples) != data:
        raise UncheckableError("mismatch", "its data are not those that it committed to")


def _recompute(
    book: Book, federation: str, run: str, round_: int, account: Account, files: MemberFiles
) -> tuple[float, float]:
    """‖m − g‖² and ‖g‖² of a round, over the arrays that are charged."""
    sequence = next(n for _, t, n, _ in book.rounds(federation, run) if t == round_)
    body = book.record(federation, sequence).body
    assert isinstance(body, RoundRecord)
    opening = book.opening(federation, run, round_)
    assert isinstance(opening.body, OpeningRecord)
    request, sent, kind = _kept(files.kept, account, body, opening.body)
    charged = next(v.terms for v in book.versions(federation) if v.hash == body.terms).arrays
    seed = seed_of(opening.hash, run, round_, account.member)
    model = update_of(files.app, context_of(files.app, files.node_config), request, kind, seed)
    received, honest = charged_arrays(request, model, charged)
    _, message = charged_arrays(request, sent, charged)
    distance = float(squared_norms(honest, [message])[0])
    return distance, float(squared_norms(received, [honest])[0])


def _kept(
    folder: Path, account: Account, body: RoundRecord, opening: OpeningRecord
) -> tuple[RecordDict, ArrayRecord, str]:
    """The kept request and model of a round, if they are those that the book documents."""
    name = f"round {body.round}"
    statement = body.statements.get(account.number)
    if statement is None:
        raise UncheckableError("missing", f"it signed no statement in {name}")
    try:
        path = kept_file(folder, account.member, body.run, body.round)
        request, reply, kind = read_kept(path)
        (received,), (sent,) = request.array_records.values(), reply.array_records.values()
        digests = record_digest(received), record_digest(sent)
    except (OSError, ValueError) as error:
        raise UncheckableError("missing", f"{name} was not kept ({type(error).__name__})") from None
    if digests[0] != body.model_before:
        raise UncheckableError("missing", f"the model kept of {name} is not the one that was sent")
    if digests[1] != statement.sent:
        raise UncheckableError("missing", f"what is kept of {name} is not what it signed")
    if config_digest(request) != opening.config:
        raise UncheckableError("missing", f"the configuration kept of {name} is not the one sent")
    return request, sent, kind

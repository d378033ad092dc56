"""What a right book fulfils: each check is one function with one sentence.

A check raises `WrongRecordError` with what it found instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import ge
from typing import TYPE_CHECKING

from verax.verifier.evidence import check_statements
from verax.verifier.forms import Record, WrongRecordError, as_seen
from verax.verifier.payments import check_charge, check_inputs, to_units
from verax.verifier.signatures import is_cosigned, parse_note
from verax.verifier.spot import check_report
from verax.verifier.terms import Terms

if TYPE_CHECKING:
    from verax.verifier.chain import Chain

# Checks of every record


def follows(chain: Chain, r: Record) -> None:
    """Each record has the next sequence number and contains the hash of the one before it."""
    place = chain.result.sequence + 1
    if r["sequence"] > place:
        raise WrongRecordError("missing", f"records {place} to {r['sequence'] - 1} are missing")
    if r["sequence"] < place:
        raise WrongRecordError("added", f"comes again after record {place - 1}")
    if r["previous"] != chain.result.hash:
        raise WrongRecordError("chain", "does not follow the one before it")


def belongs(chain: Chain, r: Record) -> None:
    """All records belong to one federation, and the first one founds it."""
    if not chain.result.federation:
        chain.result.federation = r["federation"]
    if r["federation"] != chain.result.federation:
        raise WrongRecordError("chain", f"belongs to {r['federation']!r}")
    if (r["kind"] == "founding") != (not chain.terms):
        raise WrongRecordError("chain", f"kind {r['kind']!r} is not allowed here")


# Checks by kind


def terms_keep_the_money(chain: Chain, r: Record) -> None:
    """New terms are valid and keep currency and scale."""
    terms = Terms(r["terms"], r.get("from_round", 1), chain.rules)
    if chain.terms and terms.money != chain.terms[0].money:
        raise WrongRecordError("terms", "currency or scale changed")


def notice_is_given(chain: Chain, r: Record) -> None:
    """New terms come with the notice that the terms before them demand."""
    notice, last = chain.changes["notice_rounds"], chain.last_round[1]
    if notice and last and r["from_round"] <= last + notice:
        raise WrongRecordError(
            "notice", f"new terms from round {r['from_round']} on came without notice"
        )


def quorum_has_signed(chain: Chain, r: Record) -> None:
    """Where the terms demand it, enough witnesses have signed the book before a decision."""
    changes = chain.changes
    if not changes["witnesses"]:
        return
    signed = [
        key for key in changes["witnesses"] if chain.cosigned.get(key, 0) >= chain.last_decision
    ]
    kinds = {r["kind"], *_special_decisions(chain, r)} & {*changes["cosigned"]}
    if kinds and len(signed) < changes["quorum"]:
        raise WrongRecordError(
            "quorum",
            f"{len(signed)} of {changes['quorum']} witnesses signed before it ({min(kinds)})",
        )


def _special_decisions(chain: Chain, r: Record) -> list[str]:
    """Decisions that are no kind of record: a new key, a skipped round, a time before the last."""
    booked = chain.rounds.get(r.get("run", ""))
    skips = r["kind"] == "round" and r["round"] > 1
    found = {
        "key": r["kind"] == "join" and _changes_key(chain, r),
        "skip": skips and not (booked and r["round"] - 1 in booked),
        "time": r["time"] < chain.time,
    }
    return [name for name, there in found.items() if there]


def account_is_its_own(chain: Chain, r: Record) -> None:
    """Accounts are numbered in order and belong to one member each."""
    known = [n for n, each in chain.accounts.items() if each.member == r["member"]]
    if r["account"] != (known[0] if known else len(chain.accounts)):
        raise WrongRecordError("account", f"account {r['account']} is not that of {r['member']!r}")


def name_is_distinct(chain: Chain, r: Record) -> None:
    """No two members have names that look the same."""
    for name in (r["member"], r["label"]):
        if chain.names.get(as_seen(name), r["account"]) != r["account"]:
            raise WrongRecordError("account", f"{name!r} looks like another member's name")


def key_is_its_own(chain: Chain, r: Record) -> None:
    """No two members have the same key: nobody can pass off another's statement as its own."""
    if chain.keys.get(r["key"], r["account"]) != r["account"]:
        raise WrongRecordError("account", f"the key of {r['member']!r} is another member's")


def member_is_listed(chain: Chain, r: Record) -> None:
    """Only members that the terms list join a closed federation."""
    listed = {name for terms in chain.terms for name in terms.members}
    if chain.terms[-1].members and not {r["member"], r["label"]} & listed:
        raise WrongRecordError("member", f"{r['member']!r} is not listed by the terms")


def accounts_exist(chain: Chain, r: Record) -> None:
    """Records refer to accounts that exist."""
    numbers = {*(r["accounts"] if "accounts" in r else [r["account"]])} - {None}
    for number in sorted(numbers - chain.accounts.keys())[:1]:
        raise WrongRecordError("account", f"account {number} does not exist")


def run_is_distinct(chain: Chain, r: Record) -> None:
    """No two runs have names that look the same."""
    if chain.runs.get(as_seen(r["run"]), r["run"]) != r["run"]:
        raise WrongRecordError("form", f"run {r['run']!r} looks like another run")


def round_is_new(chain: Chain, r: Record) -> None:
    """Every round is booked once, and opened at most once before that."""
    booked = chain.rounds.get(r["run"])
    if booked and r["round"] in booked:
        raise WrongRecordError(
            "repeated", f"round {r['round']} of run {r['run']!r} is in the book already"
        )
    if r["kind"] == "opening" and (r["run"], r["round"]) in chain.opened:
        raise WrongRecordError(
            "repeated", f"round {r['round']} of run {r['run']!r} is opened twice"
        )


def terms_are_those_in_force(chain: Chain, r: Record) -> None:
    """A round is opened with the terms in force, and charged by those of its opening."""
    terms = chain.terms_of(r["run"], r["round"])
    terms.price(r["round"])
    if r["terms"] != terms.hash:
        raise WrongRecordError(
            "terms", f"round {r['round']}: other terms than those that apply to it"
        )


def participants_are_members(chain: Chain, r: Record) -> None:
    """Everybody in a round is a member at that time."""
    for number in chain.restricted.intersection(r["accounts"]):
        account = chain.accounts[number]
        if not account.may_take_part(r["run"], r["round"]):
            raise WrongRecordError(
                "member", f"{account.member!r} is not a member in round {r['round']}"
            )


def inputs_are_complete(chain: Chain, r: Record) -> None:
    """A round records exactly what its rule reads, with the weights of the terms."""
    check_inputs(chain.terms_of(r["run"], r["round"]), r, chain.accounts)


def statements_are_signed(chain: Chain, r: Record) -> None:
    """What members signed agrees with the round, and everybody signed who has to."""
    if r["statements"] or chain.terms_of(r["run"], r["round"]).signed == "required":
        run = chain.checked.get(r["run"])
        opening = "" if run is None else run.openings.get(r["round"], "")
        check_statements(chain.terms_of(r["run"], r["round"]), r, chain.accounts, opening)


def payments_follow(chain: Chain, r: Record) -> None:
    """Payments follow from inputs and terms, up to rounding."""
    check_charge(chain.terms_of(r["run"], r["round"]), r, chain.accounts)


def amounts_follow(chain: Chain, r: Record) -> None:
    """Amounts follow exactly from the payments and the remainders carried so far."""
    before = list(map(chain.carried.__getitem__, r["accounts"]))
    r["carried"] = before
    units, r["carried"] = to_units(r["payments"], chain.terms[0].scale, before)
    if units != r["amounts"]:
        raise WrongRecordError("amount", "amounts do not follow from the payments")


def entries_balance(chain: Chain, r: Record) -> None:
    """Entries are in the order of their accounts and sum to zero."""
    accounts = r["accounts"]
    if any(map(ge, accounts, accounts[1:])):
        raise WrongRecordError("form", "accounts are not in ascending order")
    if total := sum(r["amounts"]):
        raise WrongRecordError("unbalanced", f"entries sum to {total}, must sum to zero")


def reference_is_new(chain: Chain, r: Record) -> None:
    """Every reference is used once."""
    if r["reference"] in chain.references:
        raise WrongRecordError(
            "repeated", f"the reference {r['reference']!r} is in the book already"
        )


def deposit_is_in_escrow(chain: Chain, r: Record) -> None:
    """A deposit is between a member and escrow, and not zero."""
    if len(r["accounts"]) != 2 or r["accounts"][0] != 0 or not r["amounts"][0]:
        raise WrongRecordError("entry", "a deposit must be between a member and escrow")


def correction_is_explained(chain: Chain, r: Record) -> None:
    """A correction has a reason, moves something, and refers only to an earlier record."""
    if not r["reason"].strip() or not any(r["amounts"]):
        raise WrongRecordError("form", "a correction without a reason or without an amount")
    if r["corrects"] is not None and r["corrects"] >= r["sequence"]:
        raise WrongRecordError("form", f"corrects record {r['corrects']}, which is not earlier")


def settlement_is_its_transfers(chain: Chain, r: Record) -> None:
    """A settlement's amounts are the sums of its transfers, each of a positive amount."""
    sums: dict[int, int] = {}
    for payer, receiver, amount in r["transfers"]:
        if payer == receiver or not amount:
            raise WrongRecordError("entry", "a transfer moves no money")
        sums[payer] = sums.get(payer, 0) - amount
        sums[receiver] = sums.get(receiver, 0) + amount
    if not sums or sums != dict(zip(r["accounts"], r["amounts"], strict=True)):
        raise WrongRecordError("entry", "the amounts are not the sums of the transfers")


def checkpoint_is_of_this_book(chain: Chain, r: Record) -> None:
    """A checkpoint states the root that the book had, signed by a witness of the terms."""
    note = parse_note(r["note"])
    size = len(chain.leaves) // 32
    if note.origin != chain.origin or not 1 <= note.size <= size:
        raise WrongRecordError("checkpoint", "is a checkpoint of another book")
    if note.root != chain.root_at(note.size):
        raise WrongRecordError("fork", "is a checkpoint of another history of this book")
    if not any(is_cosigned(note, key) for key in chain.changes["witnesses"]):
        raise WrongRecordError(
            "signature", "has no valid signature of a witness that the terms name"
        )


def run_is_open(chain: Chain, r: Record) -> None:
    """After its closing a run has no rounds any more."""
    run = chain.checked.get(r["run"])
    if run is not None and run.closing is not None:
        raise WrongRecordError("closed", f"run {r['run']!r} was closed before")


def closing_says_what_draws(chain: Chain, r: Record) -> None:
    """A run with spot checks is closed once, by a beacon or by witnesses that will draw."""
    run = chain.checked.get(r["run"])
    if run is None or run.terms is None or run.closing is not None:
        raise WrongRecordError("spot", f"run {r['run']!r} has no spot checks or is closed already")
    if not r["beacon"].strip() and not chain.changes["witnesses"]:
        raise WrongRecordError("spot", "neither a beacon nor witnesses will draw the rounds")


def draw_follows(chain: Chain, r: Record) -> None:
    """The drawn rounds follow from the randomness that the closing record announced."""
    run = chain.checked.get(r["run"])
    if run is None or run.terms is None or run.closing is None or run.draw:
        raise WrongRecordError("spot", f"run {r['run']!r} is not closed, or drawn already")
    if not run.beacon.strip() and r["value"] != run.value:
        raise WrongRecordError("draw", "the value is not that of the witnesses' signatures")
    if r["drawn"] != run.expected_draw(r["value"]):
        raise WrongRecordError("draw", "the drawn rounds do not follow from the value")


def report_is_right(chain: Chain, r: Record) -> None:
    """A report is signed by the auditor, holds the drawn rounds, and is fined by the terms."""
    check_report(chain.checked.get(r["run"]), r, chain.terms[0].scale)


_Check = Callable[["Chain", Record], None]
_EVERY: Sequence[_Check] = (follows, belongs)
_MONEY: Sequence[_Check] = (accounts_exist, entries_balance, reference_is_new)
_CHECKS: Mapping[str, Sequence[_Check]] = {
    "founding": (terms_keep_the_money,),
    "terms": (terms_keep_the_money, notice_is_given),
    "join": (account_is_its_own, name_is_distinct, key_is_its_own, member_is_listed),
    "leave": (accounts_exist,),
    "limit": (accounts_exist,),
    "opening": (run_is_distinct, run_is_open, round_is_new, terms_are_those_in_force),
    "round": (
        run_is_distinct,
        run_is_open,
        round_is_new,
        terms_are_those_in_force,
        accounts_exist,
        entries_balance,
        participants_are_members,
        amounts_follow,
        inputs_are_complete,
        statements_are_signed,
        payments_follow,
    ),
    "deposit": (*_MONEY, deposit_is_in_escrow),
    "correction": (*_MONEY, correction_is_explained),
    "settlement": (*_MONEY, settlement_is_its_transfers),
    "checkpoint": (checkpoint_is_of_this_book,),
    "closing": (closing_says_what_draws,),
    "draw": (draw_follows,),
    "spot-check": (accounts_exist, entries_balance, amounts_follow, report_is_right),
}
_DECISIONS: Mapping[str, Callable[[Chain, Record], str]] = {
    "join": lambda chain, r: _new_key_or_commitment(chain, r),
    "terms": lambda chain, r: f"new terms from round {r['from_round']} on",
    "deposit": lambda chain, r: f"deposit {r['reference']!r}: {_amounts(chain, r)}",
    "correction": lambda chain, r: (
        f"correction {r['reference']!r}: {_amounts(chain, r)} ({r['reason']})"
    ),
    "settlement": lambda chain, r: f"settlement {r['reference']!r}: {_amounts(chain, r)}",
    "closing": lambda chain, r: (
        f"run {r['run']!r} is closed; {r['beacon'] or 'signatures of witnesses'!r} will draw"
    ),
    "draw": lambda chain, r: f"the rounds of run {r['run']!r} were drawn by {r['value']!r}",
    "spot-check": lambda chain, r: (
        f"the auditor reports {r['outcome']} on {chain.accounts[r['account']].label!r}"
        f"{': ' + r['reason'] if r['reason'] else ''}: {_amounts(chain, r)}"
    ),
}


def checks_of(kind: str) -> Sequence[_Check]:
    """The checks of a record of this kind."""
    if kind in ("founding", "checkpoint"):  # before witnesses are named, and what they signed
        return (*_EVERY, *_CHECKS[kind])
    return (*_EVERY, *_CHECKS[kind], quorum_has_signed)


def decision(chain: Chain, r: Record) -> str:
    """What somebody decided on with a record, in words; empty if it follows from others."""
    words = _DECISIONS.get(r["kind"])
    return words(chain, r) if words else ""


def _new_key_or_commitment(chain: Chain, r: Record) -> str:
    if _changes_key(chain, r):
        return f"{r['label']!r} has another key"
    account = chain.accounts.get(r["account"])
    if account is not None and account.commitment not in (None, (r["data"], r["app"])):
        return f"{r['label']!r} commits to other data or another app, for runs that begin later"
    return ""


def _changes_key(chain: Chain, r: Record) -> bool:
    return r["account"] in chain.accounts and chain.accounts[r["account"]].key != r["key"]


def _amounts(chain: Chain, r: Record) -> str:
    pairs = zip(r["accounts"], r["amounts"], strict=True)
    named = [f"{chain.accounts[n].label} {units:+d}" for n, units in pairs if n in chain.accounts]
    more = f", and {len(named) - 5} more" if len(named) > 5 else ""
    return ", ".join(named[:5]) + more

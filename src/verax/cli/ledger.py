"""`verax ledger`: the books of a federation, from their founding to the settlement."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from verax.ledger import Book, Receipt, Report

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Books of charges that every member can check.")

BookOption = Annotated[str, typer.Argument(metavar="BOOK", help="A file, or a postgresql:// URL.")]
Federation = Annotated[
    str | None, typer.Option(help="Which federation; may be left out if BOOK holds one.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Member = Annotated[str, typer.Argument(help="The member's id or label.")]
FromRound = Annotated[int, typer.Option(help="The first round that it holds for.")]
Run = Annotated[str | None, typer.Option(help="Only of this run.")]
Out = Annotated[Path | None, typer.Option(help="The file to write.")]


@app.command()
def init(
    book: BookOption,
    federation: Annotated[str, typer.Option(help="The federation's name.")],
    terms: Annotated[
        Path | None, typer.Option(help="A terms.toml, as `verax audit` proposes it.")
    ] = None,
    price: Annotated[
        float | None, typer.Option(help="Instead of terms: a constant price, all else by default.")
    ] = None,
    currency: Annotated[str, typer.Option(help="With --price.")] = "credits",
    scale: Annotated[int, typer.Option(help="Decimal places of a unit; with --price.")] = 6,
    as_json: AsJson = False,
) -> None:
    """Make a book, or add a federation to one.

    Example: verax ledger init book.db --federation clinics --terms terms.toml
    """
    ledger = _ledger()
    if (terms is None) == (price is None):
        raise ValueError("the federation needs either --terms or --price")
    agreed = _terms(terms) if terms is not None else _simple_terms(price or 0.0, currency, scale)
    with ledger.Book.create(book) as opened:
        _done(opened.found(federation, agreed), as_json, f"{federation} is in the book")


@app.command()
def join(
    book: BookOption,
    member: Annotated[str, typer.Argument(help="Public key or opaque id.")],
    label: Annotated[str, typer.Option(help="What people call the member.")] = "",
    from_round: FromRound = 1,
    run: Annotated[str | None, typer.Option(help="The round is one of this run.")] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Take in a member from a round on, or change its label.

    Example: verax ledger join book.db 4f1c… --label "North clinic"
    """
    with _open(book, federation) as (opened, name):
        receipt = opened.join(name, member, label, from_round=from_round, run=run)
        _done(receipt, as_json, f"{member} is a member of {name}")


@app.command()
def leave(
    book: BookOption,
    member: Member,
    from_round: FromRound = 1,
    run: Annotated[str | None, typer.Option(help="The round is one of this run.")] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """A member takes part in no round from this one on; its balance stays.

    Example: verax ledger leave book.db North --from-round 120
    """
    with _open(book, federation) as (opened, name):
        receipt = opened.leave(name, member, from_round=from_round, run=run)
        _done(receipt, as_json, f"{member} leaves {name}")


@app.command()
def terms(
    book: BookOption,
    terms: Annotated[
        Path | None, typer.Option(help="New terms; without them, the terms are printed.")
    ] = None,
    from_round: FromRound = 1,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Change the terms from a round on, or print all versions.

    Example: verax ledger terms book.db --terms new.toml --from-round 50
    """
    if terms is not None:
        agreed = _terms(terms)
        with _open(book, federation) as (opened, name):
            receipt = opened.change_terms(name, agreed, from_round=from_round)
            _done(receipt, as_json, f"new terms from round {from_round} on")
        return
    with _open(book, federation, read_only=True) as (opened, name):
        versions = opened.versions(name)
    rows = [
        {
            "from_round": v.from_round,
            "hash": v.hash,
            "record": v.sequence,
            "toml": v.terms.to_toml(),
        }
        for v in versions
    ]
    if as_json:
        _print_json(rows)
        return
    for row in rows:
        typer.echo(f"# from round {row['from_round']} on, record {row['record']}, {row['hash']}")
        typer.echo(row["toml"])


@app.command()
def limit(
    book: BookOption,
    amount: Annotated[str, typer.Argument(help="How much may be owed, as in 12.50, or none.")],
    member: Annotated[str | None, typer.Option(help="For one member; else for all.")] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Set how much a member, or everybody, may owe before `watch` reports it.

    Example: verax ledger limit book.db 100 --member North
    """
    with _open(book, federation) as (opened, name):
        units = None if amount == "none" else _units(amount, opened.terms(name).scale)
        _done(opened.set_limit(name, units, member), as_json, "the limit is set")


@app.command()
def deposit(
    book: BookOption,
    member: Member,
    amount: Annotated[str, typer.Argument(help="As in 12.50; negative: taken out.")],
    reason: Annotated[str, typer.Option(help="What it is for; printed in statements.")] = "",
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Book money that a member pays in ahead of its charges.

    Example: verax ledger deposit book.db North 50
    """
    with _open(book, federation) as (opened, name):
        units = _units(amount, opened.terms(name).scale)
        _done(opened.deposit(name, member, units, reason), as_json, f"{amount} from {member}")


@app.command()
def correct(
    book: BookOption,
    reason: Annotated[str, typer.Option(help="Why; printed in statements.")],
    entry: Annotated[
        list[str], typer.Option(help="MEMBER=AMOUNT, as in North=-1.50; must sum to zero.")
    ],
    corrects: Annotated[int | None, typer.Option(help="The record that was wrong.")] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Book a counter-entry; what was wrong stays in the book.

    Example: verax ledger correct book.db --reason "round 3 was a test" \
        --entry North=-1.50 --entry South=1.50
    """
    with _open(book, federation) as (opened, name):
        scale = opened.terms(name).scale
        amounts: dict[str, int] = {}
        for each in entry:
            who, sign, amount = each.rpartition("=")
            if not sign or who in amounts:
                raise ValueError(f"entry {each!r} must be MEMBER=AMOUNT, each member once")
            amounts[who] = _units(amount, scale)
        _done(opened.correct(name, amounts, reason, corrects=corrects), as_json, "corrected")


@app.command()
def post(
    book: BookOption,
    file: Annotated[
        Path | None, typer.Option(help="Rounds, JSON Lines; without it, standard input.")
    ] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    r"""Charge rounds by the terms and book them; rounds that are there already change nothing.

    A line is a round: {"run": "a", "round": 1, "reports": [{"member": "north", "status": "ok",
    "statistic": 4.0, "weight": 1.0, "reason": ""}, …], "gram": [[…]] for the rules that read it}.

    Example: verax ledger post book.db --file rounds.jsonl
    """
    ledger = _ledger()
    new = known = 0
    lines: Iterable[str] = sys.stdin if file is None else _lines(file)
    with _open(book, federation) as (opened, name), _progress("posting") as step:
        for i, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                run, round_, reports, gram = _parse_round(ledger.Report, line)
                receipt = opened.post(name, run, round_, reports, gram)
            except ValueError as error:
                raise ValueError(f"line {i}: {error}; {new} rounds before it are booked") from None
            new, known = new + receipt.posted, known + (not receipt.posted)
            if as_json:
                _print_json(
                    {
                        "run": run,
                        "round": round_,
                        "posted": receipt.posted,
                        "record": receipt.sequence,
                        "hash": receipt.hash,
                        "amounts": receipt.amounts,
                    }
                )
            step(1)
    if not as_json:
        typer.echo(f"{new} rounds booked, {known} were there already")


@app.command()
def rounds(
    book: BookOption, run: Run = None, federation: Federation = None, as_json: AsJson = False
) -> None:
    """List the rounds in the book.

    Example: verax ledger rounds book.db --run first
    """
    with _open(book, federation, read_only=True) as (opened, name):
        found = opened.rounds(name, run)
    if as_json:
        _print_json([{"run": r, "round": t, "record": s, "hash": h} for r, t, s, h in found])
        return
    table = Table("run", "round", "record", "hash", title=Text(f"Rounds of {name}"))
    for run_, t, sequence, hash_ in found:
        table.add_row(Text(run_), str(t), str(sequence), hash_[:16])
    Console().print(table)


@app.command()
def balances(book: BookOption, federation: Federation = None, as_json: AsJson = False) -> None:
    """What each member owes (negative: is owed).

    Example: verax ledger balances book.db --json
    """
    with _open(book, federation, read_only=True) as (opened, name):
        sequence, hash_, found = opened.snapshot(name)
        state = opened.state(name)
    if as_json:
        _print_json(
            {
                "federation": name,
                "currency": state.currency,
                "scale": state.scale,
                "record": sequence,
                "hash": hash_,
                "balances": found,
            }
        )
        return
    table = Table(
        "member",
        "label",
        f"owes ({state.currency})",
        title=Text(f"{name}, up to record {sequence}"),
    )
    for member, units in found.items():
        table.add_row(Text(member), Text(state.account(member).label), _money(units, state.scale))
    Console().print(table)


@app.command()
def statement(
    book: BookOption,
    member: Member,
    form: Annotated[str, typer.Option("--format", help="text, json, csv or html.")] = "text",
    out: Out = None,
    run: Run = None,
    first: Annotated[int | None, typer.Option(help="First round shown.")] = None,
    last: Annotated[int | None, typer.Option(help="Last round shown.")] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """One member's charges, round by round, beside what the norms and the terms say.

    Example: verax ledger statement book.db North --format html --out north.html
    """
    _ledger()
    from verax.files import write_text
    from verax.ledger import statement as made

    form = "json" if as_json else form
    if form not in ("text", "json", "csv", "html"):
        raise ValueError(f"format is {form!r}, must be text, json, csv or html")
    with _open(book, federation, read_only=True) as (opened, name), _progress("reading") as step:
        found = made.make_statement(
            opened, name, member, run=run, first=first, last=last, progress=step
        )
    if form == "text":
        if out is None:
            _show_statement(Console(), found)
        else:
            console = Console(record=True, width=120, file=io.StringIO())
            _show_statement(console, found)
            write_text(out, console.export_text())
    else:
        text = {
            "json": lambda: json.dumps(made.to_json(found), ensure_ascii=False) + "\n",
            "csv": lambda: made.to_csv(found),
            "html": lambda: made.to_html(found),
        }[form]()
        if out is None:
            typer.echo(text, nl=False)
        else:
            write_text(out, text)
    if found.differing:
        raise typer.Exit(1)


@app.command()
def settle(
    book: BookOption,
    commit: Annotated[
        bool, typer.Option("--commit", help="Book the transfers: they have been made.")
    ] = False,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """The fewest transfers that bring all balances to zero.

    Nothing is booked without --commit. Exact for up to 12 members with a balance, else greedy.

    Example: verax ledger settle book.db
    """
    _ledger()
    from verax.ledger.settlement import settle as compute

    with _open(book, federation, read_only=not commit) as (opened, name):
        sequence, _, found = opened.snapshot(name)
        state = opened.state(name)
        result = compute(found)
        if commit and result.transfers:
            opened.settle(name, result.transfers, sequence=sequence)
    if as_json:
        _print_json(
            {
                "fewest": result.fewest,
                "committed": commit and bool(result.transfers),
                "currency": state.currency,
                "scale": state.scale,
                "transfers": [
                    {"from": t.payer, "to": t.receiver, "amount": t.amount}
                    for t in result.transfers
                ],
            }
        )
        return
    table = Table("from", "to", f"amount ({state.currency})", title=Text(f"Settlement of {name}"))
    for t in result.transfers:
        payer, receiver = state.account(t.payer).label, state.account(t.receiver).label
        table.add_row(Text(payer), Text(receiver), _money(t.amount, state.scale))
    console = Console()
    console.print(table)
    how = "no fewer would do" if result.fewest else "found greedily; fewer might do"
    booked = "booked" if commit else "not booked: --commit does that once they are paid"
    console.print(f"{len(result.transfers)} transfers, {how}; {booked}.", highlight=False)


@app.command()
def watch(book: BookOption, federation: Federation = None, as_json: AsJson = False) -> None:
    """Who owes more than the limit; exit code 1 if anybody does.

    Example: verax ledger watch book.db
    """
    with _open(book, federation, read_only=True) as (opened, name):
        over = opened.watch(name)
        scale = opened.terms(name).scale
    if as_json:
        _print_json([vars(each) for each in over])
    elif not over:
        typer.echo("nobody owes more than the limit")
    else:
        table = Table("member", "label", "owes", "limit")
        for each in over:
            balance, most = _money(each.balance, scale), _money(each.limit, scale)
            table.add_row(Text(each.member), Text(each.label), balance, most)
        Console().print(table)
    if over:
        raise typer.Exit(1)


@app.command()
def verify(
    book: BookOption,
    checkpoint: Annotated[
        list[Path] | None, typer.Option(help="An earlier checkpoint to hold the book against.")
    ] = None,
    signer: Annotated[
        str | None, typer.Option(help="The public key that checkpoints must be signed with.")
    ] = None,
    mine: Annotated[
        Path | None,
        typer.Option(help='Your own norms, JSON Lines of {"run": …, "round": …, "norm": …}.'),
    ] = None,
    member: Annotated[str | None, typer.Option(help="Who you are, for --mine.")] = None,
    federation: Federation = None,
    as_json: AsJson = False,
) -> None:
    """Check a book or an export against everything that could be wrong; exit code 1 if anything is.

    Example: verax ledger verify export.jsonl --checkpoint may.json
    """
    _ledger()
    from verax.ledger import verify as verifier

    names = [federation] if federation is not None else verifier.federations(book)
    if not names:
        raise ValueError(f"{book} holds no federation; `verax ledger init` founds one")
    failed = False
    for name in names:
        with _progress("verifying") as step:
            found = verifier.verify(
                book,
                federation=name or None,
                checkpoints=checkpoint or (),
                signer=signer,
                mine=mine,
                member=member,
                progress=step,
            )
        failed = failed or not found.ok
        if as_json:
            _print_json(
                {
                    "federation": found.federation,
                    "ok": found.ok,
                    "records": found.sequence,
                    "rounds": found.rounds,
                    "entries": found.entries,
                    "hash": found.hash,
                    "checkpoints": found.checkpoints,
                    "balances": found.balances,
                    "wrong": found.wrong,
                    "findings": [vars(each) for each in found.findings],
                }
            )
            continue
        for each in found.findings:
            typer.echo(_safe(f"WRONG ({each.kind}): {each.message}"))
        verdict = "nothing wrong found" if found.ok else f"{found.wrong} findings"
        typer.echo(
            _safe(
                f"{found.federation}: {verdict} in {found.sequence} records, {found.rounds} "
                f"rounds, {found.entries} entries; last hash {found.hash}"
            )
        )
    if failed:
        raise typer.Exit(1)


@app.command("export")
def export_(
    book: BookOption, out: Out = None, federation: Federation = None, as_json: AsJson = False
) -> None:
    """Write a federation's book to one file that `verify` and `import` read.

    Example: verax ledger export book.db --out clinics.jsonl
    """
    _ledger()
    from verax.ledger.export import default_name, export_book

    with _open(book, federation, read_only=True) as (opened, name), _progress("writing") as step:
        path = out or Path(default_name(name, ".jsonl"))
        count = export_book(opened, name, path, step)
    if as_json:
        _print_json({"federation": name, "file": str(path), "records": count})
    else:
        typer.echo(f"{count} records of {name} in {path}")


@app.command("import")
def import_(
    book: BookOption,
    file: Annotated[Path, typer.Argument(help="An export.")],
    as_json: AsJson = False,
) -> None:
    """Verify an export and take it into a book, or add what is new in it.

    Example: verax ledger import copy.db clinics.jsonl
    """
    ledger = _ledger()
    from verax.ledger.export import import_book

    with ledger.Book.create(book) as opened, _progress("importing") as step:
        name, new = import_book(opened, file, step)
    if as_json:
        _print_json({"federation": name, "new": new})
    else:
        typer.echo(f"{new} new records of {name}")


@app.command()
def checkpoint(
    book: BookOption,
    out: Out = None,
    key: Annotated[
        Path | None, typer.Option(help="Ed25519 private key (PEM) to sign with.")
    ] = None,
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make the key of --key first.")
    ] = False,
    federation: Federation = None,
) -> None:
    """Write down where the chain ends now, for members to keep; signed if there is a key.

    Example: verax ledger checkpoint book.db --out may.json --key operator.pem
    """
    _ledger()
    from verax.files import write_text
    from verax.ledger import checkpoint as made

    if new_key and key is None:
        raise ValueError("--new-key needs --key, the file to make")
    private = None
    if key is not None:
        private = made.new_key(key) if new_key else made.load_key(key)
    with _open(book, federation, read_only=True) as (opened, name):
        content = made.make_checkpoint(opened, name, private)
    text = json.dumps(content, ensure_ascii=False, sort_keys=True) + "\n"
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
        typer.echo(f"record {content['sequence']} of {name} in {out}")


# Inside


def _ledger() -> Any:
    """The package, or how to get what it needs."""
    try:
        import verax.ledger as ledger
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("verax"):
            raise
        raise ValueError(
            f"the ledger needs {error.name}, which is not installed: pip install 'verax[ledger]'"
        ) from None
    return ledger


@contextmanager
def _open(
    book: str, federation: str | None, *, read_only: bool = False
) -> Generator[tuple[Book, str]]:
    """The book and the federation that is meant."""
    ledger = _ledger()
    with ledger.Book.open(book, read_only=read_only) as opened:
        names = opened.federations() if federation is None else [federation]
        if len(names) != 1:
            held = ", ".join(map(repr, names)) or "none"
            raise ValueError(f"which federation? the book holds {held}; give --federation")
        yield opened, names[0]


@contextmanager
def _progress(what: str) -> Generator[Callable[[int], None]]:
    """A line on stderr that counts records; gone when done."""
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn(what),
        TextColumn("{task.completed:,.0f} records"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
        refresh_per_second=4,
    ) as bar:
        line = bar.add_task(what, total=None)
        yield lambda done: bar.advance(line, done)


def _terms(path: Path) -> Any:
    from verax.mechanism import Terms

    return Terms.load(path)


def _simple_terms(price: float, currency: str, scale: int) -> Any:
    from verax.mechanism import Price, Terms

    return Terms(Price.constant(price), currency=currency, scale=scale)


def _lines(path: Path) -> Iterable[str]:
    with path.open(encoding="utf-8") as file:
        yield from file


def _parse_round(
    report: type[Report], line: str
) -> tuple[str, int, list[Report], list[list[float]] | None]:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict) or not {"run", "round", "reports"} <= row.keys():
        raise ValueError('a round needs "run", "round" and "reports"')
    if unknown := row.keys() - {"run", "round", "reports", "gram"}:
        raise ValueError(f"{sorted(unknown)[0]!r} is no field of a round")
    try:
        reports = [report(**each) for each in row["reports"]]
    except TypeError:
        raise ValueError(
            "a report is an object with member, status, statistic, weight and reason"
        ) from None
    for each in reports:
        numbers = (each.statistic, each.weight)
        if any(not (x is None or type(x) in (int, float)) for x in numbers):
            raise ValueError(f"statistic and weight of {each.member!r} must be numbers")
        if not isinstance(each.member, str) or not isinstance(each.reason, str):
            raise ValueError(f"member {each.member!r} and its reason must be text")
    return row["run"], row["round"], reports, row.get("gram")


def _units(amount: str, scale: int) -> int:
    """A decimal number in whole units, exactly."""
    try:
        value = Decimal(amount).scaleb(scale)
        units = int(value)
    except (InvalidOperation, ValueError, OverflowError):
        raise ValueError(f"amount is {amount!r}, must be a number such as 12.50") from None
    if units != value:
        raise ValueError(f"amount is {amount}, the books hold {scale} decimal places")
    return units


def _money(units: int, scale: int) -> Text:
    from verax.ledger.money import format_units

    return Text(format_units(units, scale), justify="right")


def _show_statement(console: Console, found: Any) -> None:
    console.print(
        Text(
            f"Statement of {found.label} ({found.member}), {found.federation}\n"
            f"in {found.currency}; positive: owed by the member. "
            f"Opening balance {found.money(found.opening)}"
        )
    )
    table = Table("record", "booked", "what", "status")
    for heading in ("statistic", "amount", "recomputed", "balance"):
        table.add_column(heading, justify="right", no_wrap=True)
    for x in found.lines:
        what = f"round {x.round} of {x.run}" if x.kind == "round" else x.kind
        again = "" if x.recomputed is None else found.money(x.recomputed)
        table.add_row(
            str(x.sequence),
            x.time[:10],
            Text(f"{what}: {x.note}" if x.note else what),
            x.status,
            "" if x.statistic is None else f"{x.statistic:.6g}",
            found.money(x.amount),
            Text(again, style="" if x.recomputed in (None, x.amount) else "bold red"),
            found.money(x.balance),
        )
    console.print(table)
    closing = f"Closing balance {found.money(found.closing)}. "
    wrong = len(found.differing)
    closing += (
        f"{wrong} round(s) were NOT charged as the terms say."
        if wrong
        else "Every charge equals what the inputs in the book and the terms give."
    )
    console.print(Text(closing))


def _done(receipt: Receipt, as_json: bool, words: str) -> None:
    if as_json:
        _print_json(
            {"posted": receipt.posted, "record": receipt.sequence, "hash": receipt.hash}
            | ({"amounts": receipt.amounts} if receipt.amounts else {})
        )
    elif receipt.posted:
        typer.echo(_safe(f"{words} (record {receipt.sequence})"))
    else:
        typer.echo(_safe(f"{words}; it was there already"))


def _safe(text: str) -> str:
    """What a terminal shows as it is: no control characters of a forged book."""
    return "".join(c if c.isprintable() else "�" for c in text)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False))

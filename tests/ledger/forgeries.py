"""Two books with records of every kind, and the forgeries that are tried on their exports.

A forgery changes the contents of records before they are chained, hashed and, where a witness
signed them, signed again: whatever is found then is found by what the records say.
"""

import hashlib
import json

from books import dump, end_line, norms
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from verax.ledger import Book, Report, Transfer, tree
from verax.ledger.export import export_book
from verax.ledger.notes import WITNESS, Checkpoint, Note, cosign, public_key
from verax.ledger.witness import make_checkpoint, read_log
from verax.mechanism import Changes, FailurePolicy, Price, Terms, Weights

OPERATOR_KEY = Ed25519PrivateKey.from_private_bytes(b"\1" * 32)
WITNESSES = {name: Ed25519PrivateKey.from_private_bytes(name[:1].encode() * 32) for name in
             ("north", "south", "west")}  # fmt: skip
KEYS = tuple(str(public_key(key, name, WITNESS)) for name, key in WITNESSES.items())


def signed(note, *names):
    for name in names:
        note = cosign(note, name, WITNESSES[name], 1_700_000_000)
    return note


def open_book(path):
    """An open federation; the comments number its records."""
    changes = Changes(notice_rounds=1, witnesses=KEYS, quorum=2)
    with Book.create(path) as book:
        terms = Terms(Price.constant(0.5), currency="EUR", scale=2, changes=changes)
        book.create_federation("clinics", terms)  # 1
        book.join("clinics", "a", "North")  # 2
        book.join("clinics", "b", "South")  # 3
        book.post("clinics", "first", 1, norms(4, 1, 1))  # 4 joins c, 5
        book.open_round("clinics", "first", 2)  # 6
        book.post("clinics", "first", 2, norms(3, 2.3, 1))  # 7
        book.post("clinics", "first", 3, norms(5, 5, 1))  # 8
        book.deposit("clinics", "a", 1000, "start", reference="d-1")  # 9
        cheaper = Terms(Price.constant(0.25), currency="EUR", scale=2, changes=changes)
        book.change_terms("clinics", cheaper, from_round=6)  # 10
        broken = Report("c", "rejected", reason="NaN")
        book.post("clinics", "first", 4, [*norms(4.1, 1.3), broken])  # 11
        book.correct("clinics", {"a": -5, "b": 5}, "a test", corrects=4, reference="c-1")  # 12
        weighed = [Report("a", statistic=1.0, weight=0.5), Report("b", statistic=2.0, weight=1.5)]
        book.post("clinics", "first", 5, weighed)  # 13
        book.post("clinics", "first", 6, norms(1, 2, 3))  # 14
        book.set_limit("clinics", 500, "a")  # 15
        book.leave("clinics", "c", from_round=9)  # 16
        note = signed(make_checkpoint(read_log(path), "operator", OPERATOR_KEY), "north", "south")
        book.add_checkpoint("clinics", str(note))  # 17
        sequence = book.head("clinics")[0]
        book.settle("clinics", [Transfer("b", "a", 7)], sequence=sequence, reference="s-1")  # 18
        book.open_round("clinics", "first", 7)  # 19


def closed_book(path):
    """A closed federation by a rule on the Gram matrix, then by fixed weights and own prices."""
    with Book.create(path) as book:
        terms = Terms(Price.constant(0.1), rule="squared-distance", scale=4)
        book.create_federation("banks", terms)  # 1
        for member in "abc":
            book.join("banks", member)  # 2 3 4
        gram = [[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]]
        book.post("banks", "r", 1, [Report(m) for m in "abc"], gram=gram)  # 5
        own = Terms(
            Price(((0.1, 0.2, 0.3),)),
            members=("c", "a", "b"),
            allowances=((0.5, -0.25, -0.25),),
            weights=Weights("fixed", (1.0, 2.0, 3.0)),
            policy=FailurePolicy("flat-fee", "largest", "excuse", 0.7),
            scale=4,
        )
        book.change_terms("banks", own, from_round=2)  # 6
        weights = {"c": 1 / 3, "a": 2 / 3, "b": 1.0}
        reports = [
            Report(m, statistic=2.0 * w, weight=2 * w) for m, w in weights.items() if m != "b"
        ]
        book.post("banks", "r", 2, reports)  # 7: b is missing
        reports = [Report(m, statistic=1.0 + w, weight=3 * w / 2) for m, w in weights.items()]
        book.post("banks", "r", 3, reports)  # 8


def contents(path, federation, tmp):
    export = tmp / "original.jsonl"
    with Book.open(path) as book:
        export_book(book, federation, export)
    return [json.loads(line) for line in export.read_bytes().splitlines()[:-1]]


def chained(records):
    """The bytes of records, with places, hashes and the witnesses' signatures made consistent."""
    lines, previous = [], "0" * 64
    for place, record in enumerate(records, 1):
        if isinstance(record, dict):
            record = record | {"sequence": place, "previous": previous}
            if record.get("kind") == "checkpoint" and record.get("note", "").startswith("verax/"):
                record["note"] = resigned(record["note"], lines)
            record |= record.pop("exactly", {})
            record = dump(record)
        lines.append(record)
        previous = hashlib.sha256(record).hexdigest()
    return lines


def resigned(text, lines):
    """The note anew for these lines, if it was a true one."""
    note = Note.parse(text)
    leaves = [tree.leaf_hash(line) for line in lines]
    names = [name for name, _ in note.signatures if name in WITNESSES]
    size = note.checkpoint.size
    if not 1 <= size <= len(lines) or len(names) < 2:
        return text
    point = Checkpoint(f"verax/{leaves[0].hex()[:32]}", size, tree.root(leaves[:size]))
    return str(signed(Note(point, note.signatures[:1]), *names))


def export_bytes(lines):
    return b"".join(line + b"\n" for line in [*lines, end_line(lines)])


# Forgeries of a record: its number, and what is changed in it.


def put(n, **values):
    def forge(records):
        for key, value in values.items():
            old = records[n - 1].get(key)
            records[n - 1][key] = value(old) if callable(value) else value

    return forge


def exactly(n, **values):
    return lambda records: records[n - 1].__setitem__("exactly", values)


def raw(n, change):
    """Change the text of a record's line."""

    def forge(records):
        lines = chained(records)
        records[n - 1 :] = [change(lines[n - 1].decode()).encode(), *records[n:]]

    return forge


def without(n, key):
    return lambda records: records[n - 1].pop(key)


def terms(n, old, new):
    """Change the text of terms, and the hash by which rounds name them."""

    def forge(records):
        before = records[n - 1]["terms"]
        assert old in before, before
        after = records[n - 1]["terms"] = before.replace(old, new)
        named = [hashlib.sha256(text.encode()).hexdigest() for text in (before, after)]
        for record in records:
            if record.get("terms") == named[0]:
                record["terms"] = named[1]

    return forge


def drop(*numbers):
    def forge(records):
        for n in sorted(numbers, reverse=True):
            del records[n - 1]

    return forge


def insert(n, **record):
    def forge(records):
        base = {key: records[0][key] for key in ("version", "federation", "time")}
        records.insert(n - 1, base | record)

    return forge


def moved(amount, i=0, j=1):
    return lambda values: [v + amount * (k == i) - amount * (k == j) for k, v in enumerate(values)]


def copy(n, place, **changes):
    return lambda records: records.insert(place - 1, records[n - 1] | changes)


def note(change):
    """Change the text of the checkpoint, and do not sign it again."""

    def forge(records):
        text = json.loads(chained(records[:17])[16])["note"]
        records[16]["exactly"] = {"note": change(text)}

    return forge


def own_note(size, *names):
    """A checkpoint of the right root but with these signatures."""

    def forge(records):
        lines = chained(records[:16])
        leaves = [tree.leaf_hash(line) for line in lines]
        point = Checkpoint(f"verax/{leaves[0].hex()[:32]}", size, tree.root(leaves[:size]))
        made = signed(Note(point, (("x", b"12345"),)), *names)
        records[16]["note"] = str(made)

    return forge


def nested(text):
    return text[:-1] + ',"x":' + "[" * 100_000 + "]" * 100_000 + "}"


def later(note_):
    """The same signatures, of which the witnesses' state another time."""
    lines = [(name, raw if len(raw) < 70 else raw[:11] + b"\x07" + raw[12:])
             for name, raw in note_.signatures]  # fmt: skip
    return Note(note_.checkpoint, tuple(lines))


OPEN = {  # name: (the forgery, the kind of finding)
    # Inputs
    "a norm": (put(7, statistics=[9.0, 2.3, 1.0]), "payment"),
    "a norm by a millionth": (put(7, statistics=[3.000003, 2.3, 1.0]), "payment"),
    "a norm that is a whole number": (put(7, statistics=[3, 2.3, 1.0]), "form"),
    "a norm that is text": (put(7, statistics=["3.0", 2.3, 1.0]), "form"),
    "a norm that is true": (put(7, statistics=[True, 2.3, 1.0]), "form"),
    "a negative norm": (put(7, statistics=[-3.0, 2.3, 1.0]), "form"),
    "a norm too few": (put(7, statistics=[3.0, 2.3]), "form"),
    "a norm too many": (put(7, statistics=[3.0, 2.3, 1.0, 1.0]), "form"),
    "no norms": (put(7, statistics=None), "form"),
    "a norm left out": (put(7, statistics=[None, 2.3, 1.0]), "form"),
    "norms and a Gram matrix": (put(7, gram=[[1.0]]), "form"),
    "what the statistics are": (put(7, reads="misreport"), "form"),
    "an unknown statistic": (put(7, reads="distances"), "form"),
    "a status with its norm": (put(7, statuses={"1": "missing"}), "form"),
    "a status without its norm": (
        put(7, statuses={"1": "missing"}, statistics=[None, 2.3, 1.0]), "payment"),
    "an unknown status": (put(7, statuses={"1": "late"}, statistics=[None, 2.3, 1.0]), "form"),
    "a status that is ok": (put(7, statuses={"1": "ok"}), "form"),
    "a status of nobody": (put(7, statuses={"9": "missing"}), "form"),
    "a status of account 01": (put(7, statuses={"01": "missing"}), "form"),
    "an excused member that pays": (
        put(7, statuses={"1": "error"}, statistics=[None, 2.3, 1.0]), "payment"),
    "an invented weight": (put(13, weights={"1": 0.5, "2": 1.6}), "weight"),
    "a negative weight": (put(13, weights={"1": -1.0, "2": 3.0}), "form"),
    "a weight of 1 spelt out": (put(7, weights={"1": 1.0}), "form"),
    "a weight that is a whole number": (put(13, weights={"1": 0, "2": 2}), "form"),
    "a weight of nobody": (put(13, weights={"1": 0.5, "2": 1.5, "9": 1.2}), "form"),
    "a weight of who is not ok": (put(11, weights={"3": 2.0}), "form"),
    "an empty reason": (put(11, reasons={"3": ""}), "form"),
    "a reason of nobody": (put(11, reasons={"9": "x"}), "form"),
    "a reason without end": (put(11, reasons={"3": "x" * 501}), "form"),
    # Payments and amounts
    "a payment": (put(7, payments=moved(0.01)), "payment"),
    "a payment by a millionth": (put(7, payments=moved(1e-6)), "payment"),
    "a payment and its amount": (put(7, payments=moved(0.01), amounts=moved(1)), "payment"),
    "a payment too few": (put(7, payments=lambda x: x[:2]), "form"),
    "payments out of balance": (put(7, payments=lambda x: [x[0] + 1, *x[1:]]), "payment"),
    "an infinite payment": (
        raw(7, lambda x: x.replace('"payments":[', '"payments":[1e999,')), "form"),
    "an amount": (put(7, amounts=moved(1)), "amount"),
    "an amount between others": (put(11, amounts=moved(1, 1, 2)), "amount"),
    "amounts out of balance": (put(7, amounts=lambda x: [x[0] - 1, *x[1:]]), "unbalanced"),
    "amounts without what was carried": (put(8, amounts=moved(1, 2, 1)), "amount"),
    "no amounts": (put(7, amounts=[]), "form"),
    "amounts as text": (put(7, amounts=lambda x: list(map(str, x))), "form"),
    "amounts as reals": (put(7, amounts=lambda x: list(map(float, x))), "form"),
    "amounts beyond 63 bits": (put(9, amounts=[2**63, -(2**63)]), "form"),
    "amounts of a thousand digits": (
        raw(9, lambda x: x.replace("[1000,-1000]", f"[{'9' * 1000},-{'9' * 1000}]")), "form"),
    # Terms
    "the price": (put(7, price=[0.4]), "terms"),
    "a price by member": (put(7, price=[0.5, 0.5, 0.5]), "terms"),
    "no price": (put(7, price=[]), "terms"),
    "the rule": (put(7, rule="none"), "terms"),
    "terms of another time": (lambda r: r[13].update(terms=r[6]["terms"]), "terms"),
    "terms of nobody": (put(7, terms="0" * 64), "terms"),
    "the first terms": (terms(1, "values = 0.5", "values = 0.4"), "terms"),
    "backdated terms": (put(10, from_round=4), "notice"),
    "terms that hold earlier": (put(10, from_round=5), "terms"),
    "terms that hold later": (put(10, from_round=7), "terms"),
    "terms of another opening": (lambda r: r[5].update(terms="1" * 64), "terms"),
    "a price changed after the round was opened": (
        lambda r: (r.insert(6, r[9] | {"from_round": 2}), r.__delitem__(10)), "notice"),
    "terms in another currency": (terms(10, "EUR", "USD"), "terms"),
    "terms at another scale": (terms(10, "scale = 2", "scale = 3"), "terms"),
    "terms with a negative price": (terms(10, "values = 0.25", "values = -0.25"), "terms"),
    "terms with an infinite price": (terms(10, "values = 0.25", "values = inf"), "terms"),
    "terms with no price": (terms(10, "values = 0.25", "values = []"), "terms"),
    "terms with a price that no book can hold": (
        terms(10, "values = 0.25", "values = 1e30"), "terms"),
    "terms with an unknown field": (terms(10, "scale = 2", "scale = 2\nbonus = 1"), "terms"),
    "terms with an unknown rule": (terms(10, '"squared-norm"', '"squared norm"'), "terms"),
    "terms with a rule from elsewhere": (terms(10, '"squared-norm"', '"os:system"'), "terms"),
    "terms with an unknown action": (terms(10, '"largest"', '"forgive"'), "terms"),
    "terms with a fee of nothing": (terms(10, '"largest"', '"flat-fee"'), "terms"),
    "terms with a text for a number": (terms(10, "fee = 0.0", 'fee = "0"'), "terms"),
    "terms with true for a number": (terms(10, "fee = 0.0", "fee = true"), "terms"),
    "terms with blocks out of order": (terms(10, "    1,\n", "    1, 1,\n"), "terms"),
    "terms that are no TOML": (put(10, terms="price = ["), "terms"),
    "terms with fixed weights of nobody": (
        terms(10, 'kind = "reported"', 'kind = "fixed"\nvalues = [1.0, 2.0]'), "terms"),
    "terms with a quorum of nobody": (terms(10, "quorum = 2", "quorum = 4"), "terms"),
    "terms with a witness that is no key": (terms(10, "north+", "south+"), "terms"),
    "terms that demand what nobody knows": (terms(10, '"settlement"', '"gifts"'), "terms"),
    # Who and when
    "an account passes on": (put(4, account=2), "account"),
    "an account is skipped": (put(4, account=4), "account"),
    "the account of escrow": (put(4, account=0), "form"),
    "a member with two accounts": (put(3, member="a"), "account"),
    "a member renamed": (copy(2, 5, member="evil"), "account"),
    "a label that looks like another": (put(3, label="NORTH"), "account"),
    "a label in Cyrillic": (put(3, label="Nоrth"), "account"),
    "a label in Greek": (put(3, label="ΝΟRΤΗ"), "account"),
    "a label with an invisible character": (put(3, label="Sou\u200bth"), "form"),
    "a label with a control character": (put(3, label="Sou\x1bth"), "form"),
    "a label that turns around": (put(3, label="\u202ehtuoS"), "form"),
    "a label with spaces at its end": (put(3, label="South "), "form"),
    "a member called escrow": (put(3, member="escrow"), "account"),
    "a run that looks like another": (put(8, run="fіrst"), "form"),
    "a member that has not joined": (put(4, from_round=5, run=None), "member"),
    "a member that left": (
        lambda r: r.insert(7, r[15] | {"account": 1, "from_round": 1}), "member"),
    "a participant that does not exist": (put(7, accounts=[1, 2, 7]), "account"),
    "escrow as a participant": (put(7, accounts=[0, 1, 2]), "form"),
    "a participant twice": (put(7, accounts=[1, 1, 2]), "form"),
    "participants out of order": (
        put(7, **{key: (lambda x: x[::-1]) for key in
                  ("accounts", "statistics", "payments", "amounts")}), "form"),
    "a leave of nobody": (put(16, account=9), "account"),
    "a limit of nobody": (put(15, account=9), "account"),
    "a negative limit": (put(15, limit=-1), "form"),
    # Rounds
    "a round twice": (copy(8, 9), "repeated"),
    "a round of another number": (put(8, round=2), "repeated"),
    "a round 0": (put(8, round=0), "form"),
    "a round that is a real number": (put(8, round=3.0), "form"),
    "an opening of a round that is booked": (copy(6, 9), "repeated"),
    "an opening twice": (copy(6, 7), "repeated"),
    "an opening with other terms": (put(19, terms="0" * 64), "terms"),
    # Money that somebody decided on
    "a deposit out of balance": (put(9, amounts=[1000, -999]), "unbalanced"),
    "a deposit of nothing": (put(9, amounts=[0, 0]), "entry"),
    "a deposit between members": (put(9, accounts=[1, 2]), "entry"),
    "a deposit of nobody": (put(9, accounts=[0, 77]), "account"),
    "a deposit with a reference used before": (copy(9, 10), "repeated"),
    "a deposit with the reference of a correction": (put(12, reference="d-1"), "repeated"),
    "a deposit without a reference": (put(9, reference=""), "form"),
    "a correction without a reason": (put(12, reason=" "), "form"),
    "a correction of the future": (put(12, corrects=13), "form"),
    "a correction of itself": (put(12, corrects=12), "form"),
    "a correction of nothing": (put(12, amounts=[0, 0]), "form"),
    "a correction out of balance": (put(12, amounts=[-5, 6]), "unbalanced"),
    "a correction out of order": (put(12, accounts=[2, 1]), "form"),
    "a settlement without its transfers": (put(18, transfers=[]), "entry"),
    "a settlement of other transfers": (put(18, transfers=[[2, 1, 8]]), "entry"),
    "a transfer to oneself": (put(18, transfers=[[2, 1, 7], [2, 2, 7]]), "entry"),
    "a transfer of nothing": (put(18, transfers=[[2, 1, 7], [1, 2, 0]]), "entry"),
    "a negative transfer": (put(18, transfers=[[1, 2, -7]]), "form"),
    "a transfer of two": (put(18, transfers=[[2, 1]]), "form"),
    # Witnesses
    "a settlement without witnesses": (drop(17), "quorum"),
    "a settlement with one witness": (own_note(16, "north"), "quorum"),
    "a settlement after something unwitnessed": (copy(9, 18, reference="d-2"), "quorum"),
    "witnesses of an earlier state": (own_note(12, "north", "south"), "quorum"),
    "a checkpoint of nobody": (own_note(16), "signature"),
    "a checkpoint of another book": (note(lambda x: x.replace("verax/", "verax/0")), "checkpoint"),
    "a checkpoint of the future": (note(lambda x: x.replace("\n16\n", "\n99\n")), "checkpoint"),
    "a checkpoint of no records": (note(lambda x: x.replace("\n16\n", "\n0\n")), "checkpoint"),
    "a checkpoint that is none": (note(lambda x: "hello"), "checkpoint"),
    "a witness's time": (
        note(lambda x: str(later(Note.parse(x)))), "signature"),
    # Form
    "a field too many": (put(7, bonus=1), "form"),
    "a field too few": (without(7, "reasons"), "form"),
    "a kind nobody knows": (put(9, kind="gift"), "form"),
    "a kind that is a list": (put(9, kind=[]), "form"),
    "a version of the future": (put(9, version=2), "form"),
    "a time that is none": (put(9, time="yesterday"), "form"),
    "a day that does not exist": (put(9, time="2026-02-30T00:00:00Z"), "form"),
    "a key twice": (raw(9, lambda x: x[:-1] + ',"reason":"x"}'), "form"),
    "a key twice in a table": (
        raw(11, lambda x: x.replace('{"3":"NaN"}', '{"3":"NaN","3":"NaN"}')), "form"),
    "infinity": (raw(7, lambda x: x.replace("[3.0,", "[Infinity,")), "form"),
    "not a number": (raw(7, lambda x: x.replace("[3.0,", "[NaN,")), "form"),
    "nested beyond measure": (raw(9, nested), "form"),
    "a comment": (raw(9, lambda x: x + "//"), "form"),
    "two records in one": (raw(9, lambda x: x + x), "form"),
    "a list": (raw(9, lambda x: f"[{x}]"), "form"),
    "nothing": (raw(9, lambda x: ""), "form"),
    "a carriage return": (raw(9, lambda x: x.replace(",", ",\r", 1)), "form"),
    "a byte order mark": (raw(9, lambda x: "\ufeff" + x), "form"),
    "half a character": (
        raw(9, lambda x: x.replace('"reason":"start"', '"reason":"\\ud800"')), "form"),
    "another federation": (put(7, federation="banks"), "chain"),
    "a second founding": (copy(1, 9), "chain"),
    "no founding": (drop(1), "chain"),
    "a place of its own": (exactly(9, sequence=10), "missing"),
    "a place again": (exactly(9, sequence=8), "added"),
    "a record of another chain": (exactly(9, previous="1" * 64), "chain"),
}  # fmt: skip

CLOSED = {
    "a Gram entry": (put(5, gram=[[4.0, 2.0, 0.5], [2.0, 3.0, 0.25], [0.5, 0.25, 2.0]]), "payment"),
    "a Gram matrix that is not symmetric": (
        put(5, gram=[[4.0, 2.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]]), "form"),
    "a Gram matrix with a negative norm": (
        put(5, gram=[[-4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]]), "form"),
    "a Gram matrix too small": (put(5, gram=[[4.0, 1.0], [1.0, 3.0]]), "form"),
    "a Gram matrix with a short row": (
        put(5, gram=[[4.0, 1.0, 0.5], [1.0, 3.0], [0.5, 0.25, 2.0]]), "form"),
    "a Gram matrix three deep": (put(5, gram=[[[4.0]]]), "form"),
    "no Gram matrix": (put(5, gram=None), "form"),
    "a Gram matrix and statistics": (put(5, statistics=[1.0, 1.0, 1.0]), "form"),
    "norms in place of a Gram matrix": (
        put(5, gram=None, reads="norms", statistics=[4.0, 3.0, 2.0]), "form"),
    "a member whom the terms do not list": (
        insert(7, kind="join", account=4, member="d", label="d", from_round=1, run=None,
               key=None, data=None, app=None), "member"),
    "a listed member left out": (
        put(8, **{key: (lambda x: x[:2]) for key in
                  ("accounts", "statistics", "payments", "amounts")}), "unbalanced"),
    "weights that the terms do not fix": (put(8, weights={"3": 1.5, "2": 0.5}), "weight"),
    "equal weights": (put(8, weights={}), "weight"),
    "prices by member out of order": (put(8, price=[0.3, 0.2, 0.1]), "terms"),
    "an allowance": (terms(6, "0.5,", "0.4,"), "terms"),
    "allowances for two": (terms(6, "0.5,", "0.5, 0.0,"), "terms"),
    "a fee": (terms(6, "fee = 0.7", "fee = 0.6"), "payment"),
    "a member listed twice": (terms(6, '"c",', '"c", "c",'), "terms"),
}  # fmt: skip

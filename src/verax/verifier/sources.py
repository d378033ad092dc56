"""Where records come from: an export (JSON Lines), SQLite, or PostgreSQL (which needs psycopg).

Databases are opened read-only, in one transaction. Their tables must be exactly those that Verax
creates, and every table beside `record` must repeat what the records say.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from verax.verifier.chain import Chain, Verification
from verax.verifier.forms import Record, WrongRecordError
from verax.verifier.mine import OwnRecord
from verax.verifier.signatures import Note, is_cosigned, is_signed, parse_note
from verax.verifier.terms import Measure

_SCHEMA = 2
_BATCH = 128  # records that are read from a database at once
_Query = Callable[..., list[tuple[Any, ...]]]  # a statement with values for its :parameters
_Check = Callable[[bytes], Record | None]

_SQLITE = (
    ("verax_schema", "(number INTEGER NOT NULL)"),
    (
        "federation",
        "(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, sequence INTEGER NOT NULL, "
        "hash TEXT NOT NULL)",
    ),
    (
        "account",
        "(federation INTEGER NOT NULL, account INTEGER NOT NULL, member TEXT NOT NULL, "
        "label TEXT NOT NULL, PRIMARY KEY (federation, account)) WITHOUT ROWID",
    ),
    (
        "record",
        "(federation INTEGER NOT NULL, sequence INTEGER NOT NULL, content BLOB NOT NULL, "
        "PRIMARY KEY (federation, sequence))",
    ),
    (
        "entry",
        "(federation INTEGER NOT NULL, sequence INTEGER NOT NULL, account INTEGER NOT NULL, "
        "amount INTEGER NOT NULL, PRIMARY KEY (federation, sequence, account)) WITHOUT ROWID",
    ),
)
_POSTGRES = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull AND
  NOT a.atthasdef AND a.attidentity = CASE WHEN a.attname = 'id' THEN 'd' ELSE '' END AND
  a.attcollation IN (0, 100) AND c.relpersistence = 'p' AND c.relkind = 'r' AND
  NOT c.relhasrules AND NOT c.relrowsecurity AND
  NOT EXISTS (SELECT 1 FROM pg_trigger g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal) AND
  NOT EXISTS (SELECT 1 FROM pg_inherits h WHERE c.oid IN (h.inhrelid, h.inhparent))
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'verax' AND c.relkind NOT IN ('i', 'S') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY c.relname, a.attnum"""
_POSTGRES_KEYS = """
SELECT c.relname, pg_get_constraintdef(k.oid) FROM pg_constraint k
JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'verax' AND k.contype <> 'n'
UNION ALL
SELECT c.relname, pg_get_indexdef(x.indexrelid) FROM pg_index x
JOIN pg_class c ON c.oid = x.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'verax' AND NOT (x.indisvalid AND x.indisready AND x.indislive AND EXISTS (
  SELECT 1 FROM pg_constraint k WHERE k.conindid = x.indexrelid AND k.contype IN ('p', 'u')))"""
_KEYS = [
    ("account", "PRIMARY KEY (federation, account)"),
    ("entry", "PRIMARY KEY (federation, sequence, account)"),
    ("federation", "PRIMARY KEY (id)"),
    ("federation", "UNIQUE (name)"),
    ("record", "PRIMARY KEY (federation, sequence)"),
]


def verify(
    source: str | Path,
    *,
    federation: str | None = None,
    checkpoints: Sequence[str | Path] = (),
    signer: str | None = None,
    witnesses: Sequence[str] = (),
    mine: str | Path | None = None,
    member: str | None = None,
    rules: Mapping[str, Measure] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Verification:
    """Check a federation's book.

    Args:
        source: the path or URL of a database, or the path of an export (JSON Lines).
        federation: which one; may be left out if there is only one.
        checkpoints: files of earlier checkpoints to compare the history with.
        signer: the operator's public key (name+id+key) that checkpoints and receipts must be
            signed with; receipts by default with those that the terms name.
        witnesses: public keys of witnesses that must have signed the checkpoints, too.
        mine: a member's own evidence (`verax.verifier.mine`), JSON Lines.
        member: whose record `mine` is, by id or label.
        rules: further payment rules, by the name that the terms give them. Payments by a rule that
            is neither built in nor given here are not recomputed; a finding of the kind `unchecked`
            says so.
        progress: called with the number of records read since the last call.
    """
    result = Verification()
    chain = Chain(result, rules or {})
    own = None if mine is None else OwnRecord(Path(mine), member, chain)

    def check(line: bytes) -> Record | None:
        record = chain.check(line)
        if own is not None and record is not None and record["kind"] == "round":
            own.compare(record)
        if progress is not None:
            progress(1)
        return record

    if _is_export(source):
        _check_export(Path(source), federation, chain, check)
    else:
        _check_database(str(source), federation, chain, check)
    chain.finish()
    for path in map(Path, checkpoints):
        _compare(path, chain, signer, witnesses)
    if own is not None:
        own.finish(signer)
    return result


def federations(source: str | Path) -> list[str]:
    """The names of the federations in a database or an export."""
    if _is_export(source):
        with Path(source).open("rb") as file:
            try:
                return [str(json.loads(file.readline())["federation"])]
            except (ValueError, LookupError, TypeError, RecursionError):
                return [""]
    with _open_database(str(source)) as (query, schema):
        return [name for (name,) in query(f"SELECT name FROM {schema}federation ORDER BY name")]


def _compare(path: Path, chain: Chain, signer: str | None, witnesses: Sequence[str]) -> None:
    """Compare a checkpoint that a member kept with the book."""
    result = chain.result
    try:
        note: Note = parse_note(path.read_text(encoding="utf-8"))
    except (WrongRecordError, UnicodeDecodeError):
        result.add("checkpoint", 0, f"{path.name}: not a signed checkpoint")
        return
    result.checkpoints += 1
    if signer is not None and not is_signed(note, signer):
        result.add("signature", 0, f"{path.name}: not signed by {signer}")
    for key in witnesses:
        if not is_cosigned(note, key):
            result.add("signature", 0, f"{path.name}: not signed by the witness {key}")
    size = len(chain.leaves) // 32
    if note.origin != chain.origin:
        result.add("fork", 0, f"{path.name} is a checkpoint of another book, {note.origin}")
    elif note.size > size:
        message = f"the book ends at record {size}, {path.name} was made at record {note.size}"
        result.add("fork", note.size, f"{message}: records were removed")
    elif note.root != chain.root_at(note.size):
        message = f"the first {note.size} records are not those of {path.name}"
        result.add("fork", note.size, f"{message}: history was rewritten, or you see another book")


def _is_export(source: str | Path) -> bool:
    if "://" in str(source):
        return False
    with Path(source).open("rb") as file:
        return file.read(16) != b"SQLite format 3\x00"


def _check_export(path: Path, federation: str | None, chain: Chain, check: _Check) -> None:
    """Check every line of an export, then its last line: size, hash and root."""
    result = chain.result
    result.federation = federation or ""
    end = False
    with path.open("rb") as file:
        for i, line in enumerate(file, 1):
            if end:
                result.add("added", result.sequence, f"line {i}: after the end of the export")
                break
            if line.startswith(b'{"end"'):
                end = True
                size = len(chain.leaves) // 32
                root = b64encode(chain.root_at(size)).decode()
                right = json.dumps({"end": size, "hash": result.hash, "root": root}).encode()
                if line != right + b"\n":
                    result.add("missing", 0, f"the last line does not fit the {size} records")
                continue
            if not line.endswith(b"\n"):
                result.add("missing", result.sequence, f"line {i}: cut off")
            check(line.removesuffix(b"\n"))
    if not end:
        result.add("missing", result.sequence, "the export has no last line: it was cut off")


def _check_database(source: str, federation: str | None, chain: Chain, check: _Check) -> None:
    """Check every record of a database with its entries, then the tables beside the records."""
    result = chain.result
    with _open_database(source) as (query, schema):
        versions = [number for (number,) in query(f"SELECT number FROM {schema}verax_schema")]
        if versions != [_SCHEMA]:
            found = ", ".join(map(str, versions))
            raise ValueError(f"the book has schema {found}, this verifier knows {_SCHEMA}")
        heads = query(f"SELECT id, name, sequence, hash FROM {schema}federation")
        chosen = [row for row in heads if federation in (None, row[1])]
        if len(chosen) != 1:
            names = ", ".join(repr(row[1]) for row in heads)
            raise ValueError(f"which federation? the book holds {names or 'none'}")
        number, result.federation, sequence, hash_ = chosen[0]
        if schema == "main.":
            # A damaged index would hide records from the queries of others.
            for (message,) in query("PRAGMA integrity_check(5)"):
                if message != "ok":
                    result.add("damaged", 0, f"the file is damaged: {message}")
        extra = _check_records(query, schema, number, result, check)
        if (sequence, hash_) != (result.sequence, result.hash):
            message = f"the chain ends at record {result.sequence}, the book says {sequence}"
            result.add("missing", 0, message)
        accounts = query(
            f"SELECT account, member, label FROM {schema}account WHERE federation = :f "
            "ORDER BY account",
            f=number,
        )
        if accounts != [(n, a.member, a.label) for n, a in sorted(chain.accounts.items()) if n]:
            result.add("account", 0, "rows in `account` differ from the records")
        for table in ("record", "entry", "account"):
            ((lost,),) = query(
                f"SELECT count(*) FROM {schema}{table} "
                f"WHERE federation NOT IN (SELECT id FROM {schema}federation)"
            )
            extra += lost
        if extra:
            result.add("entry", 0, f"{extra} rows belong to no record or federation")


def _check_records(
    query: _Query, schema: str, federation: int, result: Verification, check: _Check
) -> int:
    """Check all records of a database; returns how many entries belong to none of them."""
    after, extra = -(2**62), 0
    while batch := query(
        f"SELECT sequence, content FROM {schema}record "
        "WHERE federation = :f AND sequence > :after ORDER BY sequence LIMIT :n",
        f=federation,
        after=after,
        n=_BATCH,
    ):
        last = batch[-1][0] if len(batch) == _BATCH else 2**63 - 1
        entries: dict[Any, list[tuple[Any, Any]]] = {}
        for sequence, account, amount in query(
            f"SELECT sequence, account, amount FROM {schema}entry WHERE federation = :f "
            "AND sequence > :after AND sequence <= :last ORDER BY sequence, account",
            f=federation,
            after=after,
            last=last,
        ):
            entries.setdefault(sequence, []).append((account, amount))
        for sequence, content in batch:
            line = content if type(content) is bytes else b""
            record = check(line) or {"sequence": sequence}
            pairs = zip(record.get("accounts", ()), record.get("amounts", ()), strict=False)
            if record["sequence"] != sequence:
                message = f"record {record['sequence']} stands in the row of record {sequence}"
                result.add("column", result.sequence, message)
            if entries.pop(sequence, []) != [pair for pair in pairs if pair[1]]:
                message = f"record {sequence}: rows in `entry` differ from the record"
                result.add("entry", result.sequence, message)
        extra += sum(map(len, entries.values()))
        after = last
    return extra


@contextmanager
def _open_database(source: str) -> Generator[tuple[_Query, str]]:
    """Open a database read-only, in one transaction; gives a function that returns rows."""
    if "://" in source and not source.startswith("sqlite"):
        with _open_postgres(source) as query:
            found = {(table, column): (kind, ok) for table, column, kind, ok in query(_POSTGRES)}
            if found != dict(_postgres_columns()) or sorted(query(_POSTGRES_KEYS)) != _KEYS:
                raise ValueError("the tables are not exactly those of a book: this is no book")
            yield query, "verax."
        return
    with _open_sqlite(Path(re.sub(r"^sqlite[^:]*:///", "", source))) as query:
        found = query("SELECT name, type, sql FROM main.sqlite_master WHERE sql IS NOT NULL")
        if {*found} != {(name, "table", f"CREATE TABLE {name} {rest}") for name, rest in _SQLITE}:
            raise ValueError("the tables are not exactly those of a book: this is no book")
        yield query, "main."


def _postgres_columns() -> Generator[tuple[tuple[str, str], tuple[str, bool]]]:
    """The columns of the tables above, as PostgreSQL names their types."""
    types = {"INTEGER": "bigint", "TEXT": "text", "BLOB": "bytea"}
    for table, columns in _SQLITE:
        for name, kind in re.findall(r"(\w+) (INTEGER|TEXT|BLOB)", columns):
            yield (table, name), (types[kind], True)


@contextmanager
def _open_postgres(url: str) -> Generator[_Query]:
    try:
        import psycopg
    except ModuleNotFoundError:
        raise OSError("PostgreSQL needs a driver: pip install 'psycopg[binary]'") from None
    conninfo = re.sub(r"^postgres\w*(\+\w+)?://", "postgresql://", url)
    try:
        # Nothing but PostgreSQL's own functions is found without naming its schema.
        with psycopg.connect(conninfo, options="-c search_path=pg_catalog") as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True

            def query(statement: str, **values: Any) -> list[tuple[Any, ...]]:
                text: Any = re.sub(r":(\w+)", r"%(\1)s", statement) if values else statement
                return connection.execute(text, values or None).fetchall()

            yield query
    except psycopg.Error as error:
        raise OSError(f"the database cannot be read: {_describe(error)}") from error


@contextmanager
def _open_sqlite(path: Path) -> Generator[_Query]:
    import sqlite3

    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        with closing(_connect_sqlite(path)) as connection:
            connection.execute("BEGIN")
            yield lambda statement, **values: connection.execute(statement, values).fetchall()
    except (sqlite3.Error, OverflowError) as error:
        raise OSError(f"the database cannot be read: {_describe(error)}") from error


def _connect_sqlite(path: Path) -> Any:
    import sqlite3
    from urllib.parse import quote

    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        # SQLite cannot create its -shm file in a read-only directory; without a -wal file nobody
        # writes, and the database can be opened as immutable.
        in_use = path.with_name(path.name + "-wal").exists()
        if in_use or error.sqlite_errorname != "SQLITE_CANTOPEN":
            raise
        return sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
    return connection


def _describe(error: BaseException | None) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())[:160]


def report(result: Verification) -> str:
    """The result in lines of text."""
    lines = [
        f"{result.federation}: {result.sequence} records, {result.rounds} rounds, "
        f"{result.entries} entries, last hash {result.hash}"
    ]
    lines += [f"PROVEN: {words}" for words in result.proven]
    lines += [f"DECISION ({each.kind}): {each.message}" for each in result.decisions]
    for finding in result.findings:
        word = "WARNING" if finding.kind == "unchecked" else "WRONG"
        lines.append(f"{word} ({finding.kind}): {finding.message}")
    lines.append("nothing wrong found" if result.ok else f"{result.wrong} findings")
    # A forged book could deceive a terminal by control characters.
    return "\n".join("".join(c if c.isprintable() else "�" for c in line) for line in lines)

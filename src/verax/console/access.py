"""Who may sign in: tokens and sessions, in a small SQLite file of their own.

A token is 32 random bytes, printed once; the file holds its SHA-256. A session begins when a token
is given and ends with it: whoever revokes a token also ends its sessions. The book is not touched.
"""

from __future__ import annotations

import hmac
import re
import secrets
import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

#: How long a session lasts after its sign-in, if its token lasts as long.
SESSION = timedelta(hours=12)

_TOKEN = re.compile(r"vx_[A-Za-z0-9_-]{43}")
_TABLES = """
CREATE TABLE IF NOT EXISTS token (
  id INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, role TEXT NOT NULL, federation TEXT NOT NULL,
  member TEXT NOT NULL, created TEXT NOT NULL, expires TEXT NOT NULL, revoked TEXT);
CREATE TABLE IF NOT EXISTS session (
  hash TEXT PRIMARY KEY, token INTEGER NOT NULL, form_key TEXT NOT NULL, expires TEXT NOT NULL);
"""
_COLUMNS = "id, role, federation, member, created, expires, revoked"


@dataclass(frozen=True)
class Token:
    """A token as it is stored: everything but the token itself.

    Attributes:
        id: its number.
        role: operator or member.
        federation: whose books it opens; empty for the operator, who sees all.
        member: the member's id; empty for the operator.
        created: when (UTC, ISO 8601).
        expires: from when on it is not accepted any more.
        revoked: when somebody revoked it, or None.
    """

    id: int
    role: str
    federation: str
    member: str
    created: str
    expires: str
    revoked: str | None

    @property
    def is_operator(self) -> bool:
        """Whether it opens everything."""
        return self.role == "operator"

    @property
    def name(self) -> str:
        """Who it is, for the log and the header of pages."""
        return "operator" if self.is_operator else self.member


@dataclass(frozen=True)
class Session:
    """A signed-in browser: its token, and the key that its forms must contain."""

    token: Token
    form_key: str


class Access:
    """Tokens and sessions.

    Args:
        path: the file; it is created if it does not exist, readable by its owner alone.
        clock: returns the current time; for tests.
    """

    def __init__(self, path: Path, clock: Callable[[], datetime] | None = None) -> None:
        self._path = path
        self._clock = clock or (lambda: datetime.now(UTC))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        with self._open() as database:
            database.executescript(_TABLES)

    def create(self, days: float, *, federation: str = "", member: str = "") -> str:
        """A new token, of the operator unless a member is given; this is the only time it is seen.

        Args:
            days: how long it is accepted.
            federation: the member's federation.
            member: the member's id.
        """
        if not 0 < days <= 3660:
            raise ValueError(f"days is {days:g}, must be more than 0 and at most 3660")
        now = self._clock()
        text = "vx_" + secrets.token_urlsafe(32)
        role = "member" if member else "operator"
        row = (_hash(text), role, federation, member, _iso(now), _iso(now + timedelta(days=days)))
        with self._open() as database:
            database.execute(
                "INSERT INTO token (hash, role, federation, member, created, expires) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )
        return text

    def tokens(self) -> list[Token]:
        """All tokens, the oldest first."""
        with self._open() as database:
            rows = database.execute(f"SELECT {_COLUMNS} FROM token ORDER BY id")
            return [Token(*row) for row in rows]

    def revoke(self, number: int) -> None:
        """Accept a token no more; its sessions end."""
        with self._open() as database:
            changed = database.execute(
                "UPDATE token SET revoked = coalesce(revoked, ?) WHERE id = ?",
                (_iso(self._clock()), number),
            )
            if not changed.rowcount:
                raise ValueError(f"there is no token {number}; `verax console tokens` lists them")
            database.execute("DELETE FROM session WHERE token = ?", (number,))

    def has_operator(self) -> bool:
        """Whether an operator's token is accepted now."""
        return any(token.is_operator and self._is_valid(token) for token in self.tokens())

    def token(self, text: str) -> Token | None:
        """The token, if it is accepted now."""
        if not _TOKEN.fullmatch(text):
            return None
        wanted = _hash(text)
        with self._open() as database:
            row = database.execute(
                f"SELECT hash, {_COLUMNS} FROM token WHERE hash = ?", (wanted,)
            ).fetchone()
        if row is None or not hmac.compare_digest(row[0], wanted):
            return None
        found = Token(*row[1:])
        return found if self._is_valid(found) else None

    def sign_in(self, text: str) -> str | None:
        """A new session for a token, as the content of a cookie; None if it is not accepted."""
        token = self.token(text)
        if token is None:
            return None
        cookie = secrets.token_urlsafe(32)
        now = self._clock()
        expires = min(_iso(now + SESSION), token.expires)
        with self._open() as database:
            database.execute("DELETE FROM session WHERE expires <= ?", (_iso(now),))
            database.execute(
                "INSERT INTO session VALUES (?, ?, ?, ?)",
                (_hash(cookie), token.id, secrets.token_urlsafe(32), expires),
            )
        return cookie

    def session(self, cookie: str) -> Session | None:
        """The session of a cookie, if it and its token are accepted now."""
        columns = ", ".join(f"token.{name}" for name in _COLUMNS.split(", "))
        with self._open() as database:
            row = database.execute(
                f"SELECT session.hash, session.expires, session.form_key, {columns} FROM session "
                "JOIN token ON token.id = session.token WHERE session.hash = ?",
                (_hash(cookie),),
            ).fetchone()
        if row is None or not hmac.compare_digest(row[0], _hash(cookie)):
            return None
        token = Token(*row[3:])
        if row[1] <= _iso(self._clock()) or not self._is_valid(token):
            return None
        return Session(token, row[2])

    def sign_out(self, cookie: str) -> None:
        """End a session."""
        with self._open() as database:
            database.execute("DELETE FROM session WHERE hash = ?", (_hash(cookie),))

    def _is_valid(self, token: Token) -> bool:
        return token.revoked is None and token.expires > _iso(self._clock())

    @contextmanager
    def _open(self) -> Generator[sqlite3.Connection]:
        """A connection of this call alone: the file is small and requests come from threads."""
        with closing(sqlite3.connect(self._path, timeout=10)) as database, database:
            yield database


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _iso(time: datetime) -> str:
    """The same form for all times, so that texts compare as times do."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

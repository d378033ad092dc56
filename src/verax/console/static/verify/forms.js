// What a record must look like: exactly its fields, each of its type and within its bounds.
// Mirrors verax/verifier/forms.py.

import { fromExactBase64 } from "./bytes.js";
import { parseJson } from "./json.js";
import { TABLE } from "./look-alikes.js";
import { asciiDigits } from "./numbers.js";

export const MAX_AMOUNT = 2n ** 63n - 1n;
const MAX_ACCOUNT = 10n ** 9n;
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{DI}\u2800\u{16fe4}\u{1d159}]/u; // or blank
const LOOK_ALIKES = new Map(
  TABLE.trim().split("\n").flatMap((line) => {
    const [shown, ...codes] = line.split(" ");
    return codes.map((code) => [String.fromCodePoint(parseInt(code, 16)), shown]);
  }),
);
// Spaces and line breaks as Python counts them; those of `trim` and \s are others.
export const SPACES = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
export const BREAK = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/;
const GAPS = new RegExp(`[${SPACES}]+`);
const BLANK = new RegExp(`^[${SPACES}]*$`);
const REAL_TEXT = /^(?:0|[1-9]\p{Nd}{0,30})(?:\.\p{Nd}{1,30})?(?:e[+-]?\p{Nd}{1,3})?$/u;

// Something that a book must not contain: its kind and a sentence.
export class Wrong extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

// The same text for names that look the same to a reader.
export function asSeen(name) {
  const shown = [...name.normalize("NFKD")].map((c) => LOOK_ALIKES.get(c) ?? c);
  const folded = shown.map((c) => c.toLowerCase().toUpperCase().toLowerCase()).join(""); // of ẞ, too
  return folded.normalize("NFKD").replaceAll("rn", "m").split(GAPS).filter(Boolean).join(" ");
}

// Whether a text holds nothing but spaces.
export const isBlank = (x) => BLANK.test(x);
// The number that a statement or a report holds as text.
export const realOf = (x) => Number(asciiDigits(x));

const length = (x) => [...x].length;
const whole = (low, high) => (x) => typeof x === "bigint" && low <= x && x <= high;
const list = (test) => (x) => Array.isArray(x) && x.every(test);
const real = (low) => (x) => typeof x === "number" && low <= x && Number.isFinite(x);
const text = (most) => (x) => typeof x === "string" && length(x) <= most && !/\p{Cs}/u.test(x);
const orNone = (test) => (x) => x === null || test(x);
const oneOf = (...words) => (x) => words.includes(x);
export const isName = (x) => typeof x === "string" && x !== "" && length(x) <= 500 && x === x.trim() && !INVISIBLE.test(x);
const digest = (x) => typeof x === "string" && /^[0-9a-f]{64}$/.test(x);
const byAccount = (test) => (x) => x instanceof Map && [...x].every(([key, value]) => /^[1-9]\p{Nd}{0,9}$/u.test(key) && test(value));
const weight = (x) => real(0)(x) && x !== 1;
const realText = (x) => typeof x === "string" && REAL_TEXT.test(x) && realOf(x) < Infinity; // signed as it is written

function base64(size) {
  return (x) => {
    try {
      return typeof x === "string" && fromExactBase64(x).length === size;
    } catch {
      return false;
    }
  };
}

// A public key of Ed25519: 32 bytes, of which 255 bits are a number below the prime 2^255 − 19.
const key = (x) => base64(32)(x) && isBelowPrime(fromExactBase64(x));

export function isBelowPrime(raw) {
  return raw[0] < 0xed || (raw[31] & 0x7f) !== 0x7f || raw.subarray(1, 31).some((byte) => byte !== 0xff);
}

// What a member signed: digest of what is sent, norm as text, example count, signature.
function statement(x) {
  return Array.isArray(x) && x.length === 4 && digest(x[0]) && realText(x[1]) && whole(0n, 2n ** 53n)(x[2]) && base64(64)(x[3]);
}

// What a spot check found: a round, a distance and a norm.
function row(x) {
  return Array.isArray(x) && x.length === 3 && round(x[0]) && realText(x[1]) && realText(x[2]);
}

// A text of one line, which may be empty.
function line(x) {
  if (!reason(x)) return false;
  const [, ...more] = x.split(BREAK);
  return !more.length || (more.length === 1 && more[0] === "" && !/[\n\r]$/.test(x));
}

function time(x) {
  if (typeof x !== "string" || !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(x) || x.startsWith("0000")) return false;
  const date = new Date(x);
  return !Number.isNaN(date.getTime()) && date.toISOString() === x.replace("Z", ".000Z");
}

function transfer(x) {
  return list(whole(0n, MAX_AMOUNT))(x) && x.length === 3 && x[0] <= MAX_ACCOUNT && x[1] <= MAX_ACCOUNT;
}

const round = whole(1n, MAX_AMOUNT);
const account = whole(1n, MAX_ACCOUNT);
const amounts = list(whole(-MAX_AMOUNT, MAX_AMOUNT));
const reason = text(500);
const terms = text(2 ** 22);
const entries = { reference: isName, accounts: list(whole(0n, MAX_ACCOUNT)), amounts };
const FIELDS = {
  founding: { terms },
  terms: { from_round: round, terms },
  join: { account, member: isName, label: isName, from_round: round, run: orNone(isName), key: orNone(key), data: orNone(digest), app: orNone(digest) },
  leave: { account, from_round: round, run: orNone(isName) },
  limit: { account: orNone(account), limit: orNone(whole(0n, MAX_AMOUNT)) },
  opening: { run: isName, round, terms: digest, config: orNone(digest) },
  round: {
    run: isName,
    round,
    accounts: list(account),
    reads: oneOf("norms", "misreport", "gram"),
    statistics: orNone(list(orNone(real(0)))),
    gram: orNone(list(list(real(-Infinity)))),
    statuses: byAccount(oneOf("missing", "rejected", "error")),
    weights: byAccount(weight),
    reasons: byAccount((x) => reason(x) && x !== ""),
    model_before: orNone(digest),
    model_after: orNone(digest),
    examples: byAccount(whole(1n, 2n ** 53n)),
    statements: byAccount(statement),
    terms: digest,
    rule: reason,
    price: list(real(0)),
    payments: list(real(-Infinity)),
    amounts,
  },
  deposit: { ...entries, reason },
  correction: { ...entries, corrects: orNone(round), reason },
  settlement: { ...entries, transfers: list(transfer) },
  checkpoint: { note: text(2 ** 16) },
  closing: { run: isName, beacon: line },
  draw: { run: isName, value: digest, drawn: byAccount(list(round)) },
  "spot-check": {
    run: isName,
    account,
    outcome: oneOf("checked", "refused", "mismatch", "missing"),
    reason: line,
    found: list(row),
    signature: base64(64),
    accounts: list(account),
    payments: list(real(-Infinity)),
    amounts,
  },
};
const COMMON = {
  version: whole(1n, 1n),
  kind: (x) => typeof x === "string" && Object.hasOwn(FIELDS, x),
  federation: isName,
  sequence: round,
  previous: digest,
  time,
};

// The record that a line stands for; whatever is odd about it is refused.
export function decode(line) {
  if (line.length > 2 ** 26 || line.includes(10) || line.includes(13)) throw new Wrong("form", "is not one line of bytes of a bounded size");
  let table;
  try {
    table = parseJson(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(line));
  } catch (error) {
    throw new Wrong("form", `is not JSON as it must be (${String(error.message).slice(0, 80)})`);
  }
  if (!(table instanceof Map) || !COMMON.kind(table.get("kind"))) throw new Wrong("form", "is of no known kind");
  const fields = { ...COMMON, ...FIELDS[table.get("kind")] };
  const odd = [...new Set([...Object.keys(fields), ...table.keys()])].filter((key) => !Object.hasOwn(fields, key) || !table.has(key));
  if (odd.length) throw new Wrong("form", `has missing or unknown fields: ${odd.sort().slice(0, 5).join(", ")}`);
  for (const [key, test] of Object.entries(fields)) {
    if (!test(table.get(key))) throw new Wrong("form", `has a field ${key} that cannot be`);
  }
  const record = Object.fromEntries(table);
  if ((record.accounts?.length ?? 0) !== (record.amounts?.length ?? 0)) throw new Wrong("form", "does not have as many amounts as accounts");
  for (const key of ["statuses", "weights", "reasons", "examples", "statements", "drawn"]) {
    if (record[key]) record[key] = new Map([...record[key]].map(([number, value]) => [BigInt(asciiDigits(number)), value]));
  }
  return record;
}

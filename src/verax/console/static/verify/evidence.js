// What members signed about their updates. Mirrors verax/verifier/evidence.py.

import { encode, fromBase64 } from "./bytes.js";
import { Wrong, realOf } from "./forms.js";
import { fsum, isClose, quotient } from "./numbers.js";
import { verifyEd25519 } from "./signatures.js";

// The bytes that a member signed about its update in a round.
export function signedText(r, [sent, norm, examples], opening) {
  const lines = [
    "verax-statement/v1",
    `federation ${r.federation}`,
    `run ${r.run}`,
    `round ${r.round}`,
    `terms ${r.terms}`,
    `received ${r.model_before}`,
    `sent ${sent}`,
    `norm ${norm}`,
    `examples ${examples}`,
    ...(opening ? [`opening ${opening}`] : []),
  ];
  return encode(lines.map((line) => `${line}\n`).join(""));
}

// Statements are by members who sent something, signed, and agree with the round.
export async function checkStatements(terms, r, accounts, opening) {
  const { statements, statuses } = r;
  if (statements.size && (terms.signed === "none" || r.model_before === null)) throw new Wrong("statement", "the terms or a missing model exclude statements");
  if (terms.signed === "required" && r.accounts.some((number) => !statuses.has(number) && !statements.has(number))) {
    throw new Wrong("statement", "a member that is ok signed no statement");
  }
  for (const [number, statement] of statements) {
    if (!r.accounts.includes(number) || statuses.get(number) === "missing") throw new Wrong("statement", `account ${number} sent nothing to sign`);
    const [, norm, examples, signature] = statement, { label, key } = accounts.get(number);
    if (!statuses.has(number) && !isNormBooked(r, number, realOf(norm), 1e-6)) throw new Wrong("statement", `${label} signed the norm ${norm}, not the booked one`);
    if ((r.examples.get(number) ?? examples) !== examples) throw new Wrong("statement", `${label} signed ${examples} examples`);
    const message = signedText(r, statement, opening);
    if (key === null || !(await verifyEd25519(fromBase64(key), message, fromBase64(signature)))) {
      throw new Wrong("signature", `the statement of ${label} is not signed by its key`);
    }
  }
}

// Whether the round charges an update of this squared norm, as far as its record says it.
export function isNormBooked(r, number, norm, tolerance) {
  if (r.reads === "misreport") return true; // the book holds a distance that others computed
  const weight = effectiveWeight(r, number), booked = bookedNorm(r, number);
  if (!weight) return true;
  if (booked === null) throw new TypeError("a norm is not booked");
  return isClose(norm, quotient(booked, weight ** 2), tolerance);
}

// (1 + E) w: by how much an update counts; E is the others' number, counted by their weight.
export function effectiveWeight(r, number) {
  const others = r.accounts.filter((n) => n !== number && !r.statuses.has(n)).map((n) => r.weights.get(n) ?? 1);
  if (!others.length) return 1;
  const own = r.weights.get(number) ?? 1, largest = Math.max(...others);
  const parts = others.map((other) => quotient(other, largest));
  const count = fsum(parts) ** 2 / fsum(parts.map((part) => part * part));
  return quotient((1 + count) * own, fsum([own, ...others]));
}

// The squared norm of a member's update as it was charged; null if the round has none.
export function bookedNorm(r, number) {
  const place = r.accounts.filter((n) => !r.statuses.has(n)).indexOf(number);
  const booked = r.reads === "norms" ? r.statistics[r.accounts.indexOf(number)] : r.gram[place][place];
  if (booked === undefined) throw new RangeError("a norm too few is booked");
  return booked;
}

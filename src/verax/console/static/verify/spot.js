// Spot checks: what was drawn, what an auditor reported, and its fine, computed again.
// Mirrors verax/verifier/spot.py.

import { encode, fromBase64, joined, sha256 } from "./bytes.js";
import { effectiveWeight } from "./evidence.js";
import { Wrong, isBlank, realOf } from "./forms.js";
import { bisectRight, fraction, fsum, powerOfTen, sum } from "./numbers.js";
import { listedOrder } from "./payments.js";
import { cosignature, verifyEd25519 } from "./signatures.js";

const MAX_FINE = 2 ** 53; // minor units
const SMALLEST = 1074n; // 2^−1074 is the smallest floating-point number: all others are multiples of it
const DIGEST_BITS = 256n;

export const ascending = (numbers) => [...numbers].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
const sameList = (a, b) => a.length === b.length && a.every((each, k) => each === b[k]);
const sameTable = (a, b) => a.size === b.size && [...a].every(([key, row]) => b.has(key) && sameList(row, b.get(key)));

// What the book says about the spot checks of one run, up to a record.
export class CheckedRun {
  terms = null; // the section [spot] of its last round
  rounds = new Map(); // by account and round: price and weight of updates that counted
  commitments = new Map(); // data and app by account
  openings = new Map(); // hash by round
  closing = null; // its place and hash
  beacon = "";
  witnesses = []; // whose signatures draw without a beacon
  value = null; // of the witnesses' signatures
  draw = ""; // its hash
  drawn = new Map();
  reported = new Set();

  // What members committed to when the run first saw them cannot change for it.
  commit(accounts) {
    for (const [number, { commitment }] of accounts) {
      if (commitment !== null && !this.commitments.has(number)) this.commitments.set(number, commitment);
    }
  }

  // Remember which updates of a round can be drawn.
  addRound(r, terms, accounts) {
    this.terms = terms.spot;
    const prices = new Map(r.accounts.map((number) => [number, r.price[0] ?? 0]));
    if (r.price.length > 1) {
      const order = listedOrder(terms, r, accounts);
      if (order.length !== r.price.length) throw new RangeError("there must be a price per member");
      order.forEach((place, k) => prices.set(r.accounts[place], r.price[k]));
    }
    for (const number of r.accounts.filter((n) => !r.statuses.has(n))) {
      if (!this.rounds.has(number)) this.rounds.set(number, new Map());
      this.rounds.get(number).set(r.round, { price: prices.get(number), weight: effectiveWeight(r, number) });
    }
  }

  // The signatures of all witnesses under the closing record become its randomness.
  async addCheckpoint(note) {
    if (this.closing === null || this.value !== null || note.size !== this.closing.sequence) return;
    const signed = [];
    for (const key of this.witnesses) signed.push(await cosignature(note, key));
    if (signed.length && signed.every((raw) => raw !== null)) this.value = (await sha256(joined(...signed))).hex;
  }

  // The rounds that a value draws, by account. A round is drawn by its part of the sum of prices, in exact
  // whole numbers: prices as multiples of 2^−1074, and random numbers as multiples of 2^−256.
  async expectedDraw(value) {
    const seed = (await sha256(encode(`verax/closing/v1\n${this.closing.hash}\n${value}\n`))).hex, result = new Map();
    for (const number of ascending(this.rounds.keys())) {
      const order = [...this.rounds.get(number).keys()], sums = [];
      for (const { price } of this.rounds.get(number).values()) sums.push((sums.at(-1) ?? 0n) + multiple(price));
      if (!sums.length) throw new RangeError(`account ${number} has no rounds`);
      if (!sums.at(-1)) continue;
      const ends = sums.map((each) => each << DIGEST_BITS), drawn = [];
      for (let k = 0; k < this.terms.rounds; k++) drawn.push(order[bisectRight(ends, (await randomNumber(seed, number, k)) * sums.at(-1))]);
      result.set(number, drawn);
    }
    return result;
  }

  // What everybody of whom rounds were drawn pays for a report.
  payments(r, scale) {
    const { terms } = this, rounds = this.rounds.get(r.account);
    if (!rounds) throw new RangeError(`account ${r.account} has no rounds`);
    const members = ascending(this.drawn.keys());
    const levy = Math.min(r.outcome === "checked" ? this.fine(r, rounds) : terms[r.outcome], MAX_FINE / powerOfTen(scale));
    if (members.length === 1) return [0];
    return members.map((number) => (number === r.account ? levy : -levy / (members.length - 1)));
  }

  // c W/k Σ w² d: of drawn rounds whose distance d is more than the tolerance.
  fine(r, rounds) {
    const { terms } = this, found = new Map(r.found.map(([t, distance, norm]) => [t, [realOf(distance), realOf(norm)]]));
    const parts = this.drawn.get(r.account).map((t) => {
      const [distance, norm] = found.get(t);
      return distance <= terms.tolerance ** 2 * norm ? 0 : rounds.get(t).weight ** 2 * distance;
    });
    const total = sum([...rounds.values()].map(({ price }) => price));
    return ((terms.fine * total) / terms.rounds) * fsum(parts);
  }

  // Whether the drawn rounds of a record are those that its value draws.
  async isDrawn(r) {
    return sameTable(r.drawn, await this.expectedDraw(r.value));
  }
}

// A report is complete, on a member of whom rounds were drawn, signed and fined as it says.
export async function checkReport(run, r, scale) {
  const number = r.account;
  if (!run?.draw || run.terms === null || !run.drawn.has(number)) throw new Wrong("spot", `no rounds of account ${number} were drawn`);
  if (run.reported.has(number)) throw new Wrong("repeated", `account ${number} was reported on already`);
  const checked = r.outcome === "checked", wanted = checked ? ascending(new Set(run.drawn.get(number))) : [];
  if (!sameList(r.found.map(([t]) => t), wanted) || checked !== isBlank(r.reason)) throw new Wrong("spot", "the report does not hold the rounds that were drawn");
  if (checked && !run.commitments.has(number)) throw new Wrong("spot", `account ${number} committed to nothing`);
  if (!(await verifyEd25519(run.terms.key, signedText(run, r), fromBase64(r.signature)))) {
    throw new Wrong("signature", "the report is not signed by the auditor of the terms");
  }
  if (!sameList(r.accounts, ascending(run.drawn.keys())) || r.payments.length !== r.accounts.length) {
    throw new Wrong("spot", "the fine is not shared by those of whom rounds were drawn");
  }
  const right = run.payments(r, scale), difference = Math.max(...right.map((payment, k) => Math.abs(payment - r.payments[k])));
  if (!(difference <= 1e-9 * Math.max(...right.map(Math.abs)))) throw new Wrong("payment", `the fine differs by ${difference.toPrecision(6)} from report and terms`);
}

// The bytes that the auditor signed.
function signedText(run, r) {
  const { data, app } = run.commitments.get(r.account) ?? { data: "-", app: "-" };
  const lines = [
    "verax-spot-check/v1",
    `draw ${run.draw}`,
    `account ${r.account}`,
    `outcome ${r.outcome}`,
    `reason ${r.reason}`,
    `data ${data}`,
    `app ${app}`,
    ...r.found.map(([t, distance, norm]) => `round ${t} ${distance} ${norm}`),
  ];
  return encode(lines.map((line) => `${line}\n`).join(""));
}

// A floating-point number as a multiple of the smallest one.
function multiple(x) {
  const [above, shift] = fraction(x);
  return above << (SMALLEST - shift);
}

// The k-th random number of an account: at least 0 and less than 1, as a multiple of 2^−256.
async function randomNumber(seed, number, k) {
  const { hex } = await sha256(encode(`verax/draw/v1\n${seed}\n${number}\n${k}\n`));
  return BigInt(`0x${hex}`);
}

// The chain of records and the Merkle tree over them: the book up to a record.
// Mirrors verax/verifier/chain.py.

import { checksOf, decision, roundKey } from "./checks.js";
import { hexOf, isCosigned, joined, parseNote, sha256 } from "./evidence.js";
import { Wrong, asSeen, decode } from "./forms.js";
import { Terms } from "./terms.js";

const MAX_FINDINGS = 200; // findings that are kept; the rest is only counted
const LEAF = new Uint8Array([0]), NODE = new Uint8Array([1]);

// What was read and what was found, as `verax ledger verify --json` says it.
export class Verification {
  federation = "";
  records = 0n;
  hash = "0".repeat(64);
  root = new Uint8Array();
  rounds = 0;
  entries = 0;
  balances = new Map();
  findings = [];
  wrong = 0;
  decisions = [];
  unchecked = [];
  checkpoints = 0;

  get ok() {
    return this.wrong === 0;
  }

  add(kind, sequence, message) {
    this.wrong += kind !== "unchecked";
    if (this.findings.length < MAX_FINDINGS) this.findings.push({ kind, sequence: Number(sequence), message });
  }

  decided(kind, sequence, message) {
    this.decisions.push({ kind, sequence: Number(sequence), message });
  }
}

// The book up to a record, and the checks of the next one.
export class Chain {
  terms = [];
  accounts = new Map([[0n, { member: "escrow", label: "escrow", joined: { round: 1n, run: null }, left: null }]]);
  names = new Map([["escrow", 0n]]); // account by a name as people see it
  runs = new Map(); // run by its name as people see it
  balances = new Map();
  carried = new Map([[0n, 0n]]); // nano-units
  rounds = new Set(); // run and round
  numbers = new Map(); // the rounds of each run
  opened = new Map(); // run and round → hash of the terms
  lastRound = 0n;
  lastOfRun = new Map(); // the record of each run's last round
  references = new Set();
  leaves = [];
  cosigned = new Map();
  lastDecision = 0n;
  time = "";

  constructor(result) {
    this.result = result;
  }

  // Check a record; returns it if it could be read.
  async check(line) {
    const { result } = this;
    let place = result.records + 1n, record = null;
    const note = (error) => {
      if (error instanceof Wrong) result.add(error.kind, place, `record ${place}: ${error.message}`);
      else throw error;
    };
    try {
      record = decode(line);
      place = record.sequence;
      for (const each of checksOf(record.kind)) {
        try {
          await each(this, record);
        } catch (error) {
          note(error);
        }
      }
      await this.apply(record);
    } catch (error) {
      // A record that follows a wrong one may refer to what is not there.
      note(error instanceof Wrong ? error : new Wrong("form", `cannot be checked (${String(error.message).slice(0, 80)})`));
    }
    [result.records, result.hash] = [place, (await sha256(line)).hex];
    this.leaves.push((await sha256(joined(LEAF, line))).raw);
    return record;
  }

  // Make the checks that need the last record.
  async finish() {
    const { result } = this;
    for (const [number, account] of this.accounts) {
      if (number || this.balances.has(0n)) result.balances.set(account.member, this.balances.get(number) ?? 0n);
    }
    if ([...this.balances.values()].reduce((a, b) => a + b, 0n)) result.add("unbalanced", 0, "balances do not sum to zero");
    if (!result.records) result.add("missing", 0, "there is no record at all");
    result.root = await this.rootAt(this.leaves.length);
    for (const [run, numbers] of this.numbers) {
      for (const [first, last] of gaps(numbers)) result.decided("skipped", 0, `run ${run} has no rounds ${first} to ${last}`);
    }
  }

  // The root of the tree over the first records (RFC 6962).
  async rootAt(size) {
    let level = this.leaves.slice(0, size);
    while (level.length > 1) {
      const pairs = [];
      for (let k = 0; k + 1 < level.length; k += 2) pairs.push((await sha256(joined(NODE, level[k], level[k + 1]))).raw);
      level = level.length % 2 ? [...pairs, level.at(-1)] : pairs;
    }
    return level[0] ?? (await sha256(new Uint8Array())).raw;
  }

  // The name of the log in checkpoints.
  get origin() {
    return `verax/${this.leaves.length ? hexOf(this.leaves[0].slice(0, 16)) : ""}`;
  }

  // The terms of a round: those of its opening, or the latest that apply to it.
  termsOf({ run, round }) {
    const opened = this.opened.get(roundKey({ run, round }));
    const found = this.terms.findLast((terms) => (opened ? terms.hash === opened : terms.fromRound <= round));
    if (!found) throw new Wrong("terms", `no terms apply to round ${round}`);
    return found;
  }

  // What the terms of the last round demand of changes.
  get changes() {
    return this.termsOf({ run: "", round: this.lastRound || 1n }).changes;
  }

  // Bring the state up to the record.
  async apply(r) {
    const { kind, sequence: place } = r, words = decision(this, r);
    if (words) this.result.decided(kind, place, `record ${place}: ${words}`);
    if (r.time < this.time) this.result.decided("time", place, `record ${place}: time ${r.time} is before ${this.time}`);
    this.time = r.time;
    if (kind === "founding" || kind === "terms") await this.addTerms(r);
    else if (kind === "join") this.join(r);
    else if (kind === "leave") this.leave(r);
    else if (kind === "opening") {
      this.opened.set(roundKey(r), r.terms);
      this.runs.set(asSeen(r.run), r.run);
    } else if (kind === "round") this.addRound(r);
    else if (kind === "checkpoint") await this.addCosignatures(r);
    else this.references.add(r.reference ?? "");
    (r.accounts ?? []).forEach((number, k) => this.balances.set(number, (this.balances.get(number) ?? 0n) + r.amounts[k]));
    this.result.entries += r.accounts?.length ?? 0;
    if (kind !== "checkpoint") this.lastDecision = place;
  }

  async addTerms(r) {
    const terms = await Terms.read(r.terms, r.from_round ?? 1n, r.sequence);
    this.terms.push(terms);
    if (terms.measure === null && !this.result.unchecked.includes(terms.rule)) {
      this.result.unchecked.push(terms.rule);
      this.result.add("unchecked", r.sequence, `record ${r.sequence}: payments by rule ${terms.rule} were not recomputed`);
    }
  }

  join(r) {
    const old = this.accounts.get(r.account);
    if (old) this.names.delete(asSeen(old.label));
    if (!this.carried.has(r.account)) this.carried.set(r.account, 0n);
    this.accounts.set(r.account, { member: r.member, label: r.label, joined: { round: r.from_round, run: r.run }, left: null });
    this.names.set(asSeen(r.member), r.account);
    this.names.set(asSeen(r.label), r.account);
  }

  leave(r) {
    const account = this.accounts.get(r.account);
    if (!account) throw new TypeError(`there is no account ${r.account}`);
    account.left = { round: r.from_round, run: r.run };
  }

  addRound(r) {
    const { run, round, sequence: place } = r;
    this.result.rounds += 1;
    if (!this.opened.has(roundKey(r)) && this.lastOfRun.has(run)) {
      const terms = this.termsOf(r);
      if (terms.sequence > this.lastOfRun.get(run)) {
        this.result.decided("terms", place, `record ${place}: nothing shows that the norms of round ${round} of run ${run} were unknown when its terms were booked as record ${terms.sequence}`);
      }
    }
    this.rounds.add(roundKey(r));
    if (!this.numbers.has(run)) this.numbers.set(run, []);
    this.numbers.get(run).push(round);
    this.runs.set(asSeen(run), run);
    this.opened.delete(roundKey(r));
    this.lastRound = round;
    this.lastOfRun.set(run, place);
    r.accounts.forEach((number, k) => this.carried.set(number, r.carried[k]));
  }

  async addCosignatures(r) {
    const note = parseNote(r.note);
    for (const key of this.changes.witnesses) {
      const known = this.cosigned.get(key) ?? 0n;
      if (await isCosigned(note, key)) this.cosigned.set(key, note.size > known ? note.size : known);
    }
  }
}

// First and last number of each gap after 1.
function gaps(numbers) {
  const sorted = [...numbers].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0)), found = [];
  let next = 1n;
  for (const number of sorted) {
    if (number > next) found.push([next, number - 1n]);
    if (number >= next) next = number + 1n;
  }
  return found;
}

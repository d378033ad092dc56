// The chain of records and the Merkle tree over them: the book up to a record.
// Mirrors verax/verifier/chain.py.

import { hexOf, joined, sha256 } from "./bytes.js";
import { checksOf, decision, roundKey } from "./checks.js";
import { Wrong, asSeen, decode } from "./forms.js";
import { isCosigned, parseNote } from "./signatures.js";
import { CheckedRun, ascending } from "./spot.js";
import { Terms } from "./terms.js";

const MAX_FINDINGS = 200; // findings that are kept; the rest is only counted
const ESCROW = { member: "escrow", label: "escrow", joined: { round: 1n, run: null }, left: null, key: null, keys: [], commitment: null };
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
  proven = []; // what a member's statements and receipts prove, a sentence for each receipt

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
  accounts = new Map([[0n, ESCROW]]);
  names = new Map([["escrow", 0n]]); // account by a name as people see it
  keys = new Map(); // account by a key that it has or had
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
  checked = new Map(); // spot checks by run
  time = "";

  constructor(result) {
    this.result = result;
  }

  // Check a record; returns it if it could be read.
  async check(line) {
    const { result } = this;
    const { hex } = await sha256(line);
    let place = result.records + 1n, record = null;
    const note = (error) => {
      if (error instanceof Wrong) result.add(error.kind, place, `record ${place}: ${error.message}`);
      else throw error;
    };
    try {
      record = decode(line);
      [place, record.hash] = [record.sequence, hex];
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
    [result.records, result.hash] = [place, hex];
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
    else if (kind === "opening") this.open(r);
    else if (kind === "round") this.addRound(r);
    else if (kind === "checkpoint") await this.addCheckpoint(r);
    else if (["closing", "draw", "spot-check"].includes(kind)) this.addCheck(r);
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
    const commitment = r.data === null || r.app === null ? null : { data: r.data, app: r.app };
    const keys = [...(old?.keys ?? []), [r.sequence, r.key]];
    this.accounts.set(r.account, { member: r.member, label: r.label, joined: { round: r.from_round, run: r.run }, left: null, key: r.key, keys, commitment });
    if (r.key !== null) this.keys.set(r.key, r.account);
    this.names.set(asSeen(r.member), r.account);
    this.names.set(asSeen(r.label), r.account);
  }

  leave(r) {
    const account = this.accounts.get(r.account);
    if (!account) throw new TypeError(`there is no account ${r.account}`);
    account.left = { round: r.from_round, run: r.run };
  }

  open(r) {
    this.opened.set(roundKey(r), r.terms);
    this.runs.set(asSeen(r.run), r.run);
    this.checkedRun(r)?.openings.set(r.round, r.hash);
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
    this.checkedRun(r)?.addRound(r, this.termsOf(r), this.accounts);
    this.rounds.add(roundKey(r));
    if (!this.numbers.has(run)) this.numbers.set(run, []);
    this.numbers.get(run).push(round);
    this.runs.set(asSeen(run), run);
    this.opened.delete(roundKey(r));
    this.lastRound = round;
    this.lastOfRun.set(run, place);
    this.carry(r);
  }

  carry(r) {
    r.accounts.forEach((number, k) => this.carried.set(number, r.carried[k]));
  }

  async addCheckpoint(r) {
    const note = parseNote(r.note);
    for (const key of this.changes.witnesses) {
      const known = this.cosigned.get(key) ?? 0n;
      if (await isCosigned(note, key)) this.cosigned.set(key, note.size > known ? note.size : known);
    }
    for (const run of this.checked.values()) await run.addCheckpoint(note);
  }

  // The spot checks of a record's run, if its terms have them.
  checkedRun(r) {
    if (!this.terms.some((terms) => terms.hash === r.terms && terms.spot !== null)) return null;
    if (!this.checked.has(r.run)) this.checked.set(r.run, new CheckedRun());
    const run = this.checked.get(r.run);
    run.commit(this.accounts);
    return run;
  }

  addCheck(r) {
    const run = this.checked.get(r.run);
    if (!run) throw new RangeError(`there are no spot checks of run ${r.run}`);
    if (r.kind === "closing") {
      [run.closing, run.beacon] = [{ sequence: r.sequence, hash: r.hash }, r.beacon];
      run.witnesses = this.changes.witnesses;
    } else if (r.kind === "draw") [run.draw, run.drawn] = [r.hash, r.drawn];
    else {
      run.reported.add(r.account);
      this.carry(r);
    }
  }
}

// First and last number of each gap after 1.
function gaps(numbers) {
  const found = [];
  let next = 1n;
  for (const number of ascending(numbers)) {
    if (number > next) found.push([next, number - 1n]);
    if (number >= next) next = number + 1n;
  }
  return found;
}

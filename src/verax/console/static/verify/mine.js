// A member's own evidence against the book: norms, signed statements, and the operator's receipts.
// Mirrors verax/verifier/mine.py.
//
// A file of JSON Lines. {"run", "round", "norm"} is what the member sent; with "statement" and "signature"
// it is signed. {"receipt"} is a proof of C2SP (`tlog-proof`) that the operator signed: a round's record
// and its path in the Merkle tree. Whoever knows the two public keys can check both.
//
// A round may stand in the file several times: a server that was restarted has it trained again. What was
// signed for another federation is left aside.

import { encode, fromBase64, joined, same, sha256 } from "./bytes.js";
import { roundKey } from "./checks.js";
import { bookedNorm, effectiveWeight, isNormBooked } from "./evidence.js";
import { BREAK, Wrong, decode } from "./forms.js";
import { asciiDigits } from "./numbers.js";
import { isSigned, parseNote, partition, verifyEd25519 } from "./signatures.js";

const LEAF = new Uint8Array([0]), NODE = new Uint8Array([1]);
const INDEX = /^-?\d+$/;
const FILE = "your record";

const nameOf = (key) => {
  const [run, t] = JSON.parse(key);
  return `round ${t} of run ${run}`;
};

// What a member kept, compared with a book.
export class OwnRecord {
  sent = new Map(); // by run and round: lines with a norm, and with what was signed for which federation
  receipts = [];
  booked = new Map(); // by run and round: what the book says of the member, in words
  tookPart = false;

  constructor(text, member, chain) {
    [this.member, this.chain] = [member, chain];
    text.split(/\r\n|\r|\n/).forEach((line, k) => {
      if (line.trim()) this.read(line, k + 1);
    });
  }

  read(line, number) {
    try {
      // Python also writes numbers that JSON does not know, of updates that are no numbers any more.
      const row = JSON.parse(line.replace(/("norm": *)(-?Infinity|NaN)(?=[,}])/, '$1"$2"'));
      if ("receipt" in row) {
        this.receipts.push(String(row.receipt));
        return;
      }
      if (!("run" in row)) throw new SyntaxError("no run");
      const key = roundKey({ run: String(row.run), round: BigInt(row.round) });
      const sent = { norm: realNumber(row.norm), statement: "", signature: "", federation: null };
      if ("statement" in row) {
        [sent.statement, sent.signature] = [String(row.statement), String(row.signature)];
        sent.federation = said(sent.statement).get("federation") ?? null;
      }
      this.sent.set(key, [...(this.sent.get(key) ?? []), sent]);
    } catch {
      throw new SyntaxError(`${FILE}, line ${number}: must be like {"run": "a", "round": 1, "norm": 2.5}`);
    }
  }

  // Compare a round of the book with what the member sent.
  compare(r) {
    const number = r.accounts.find((n) => this.isMine(n)), key = roundKey(r);
    if (number === undefined) return;
    this.tookPart = true;
    this.booked.set(key, inWords(r, number));
    const words = this.difference(r, number);
    if (words) this.wrong(key, words);
  }

  // What the member sent in a round of this federation.
  sentIn(key) {
    const { federation } = this.chain.result;
    return (this.sent.get(key) ?? []).filter((sent) => sent.federation === null || sent.federation === federation);
  }

  // What differs between a round and the member's evidence, in words; empty if nothing does.
  difference(r, number) {
    const status = r.statuses.get(number), every = this.sentIn(roundKey(r)), statement = r.statements.get(number);
    if (status !== undefined) return every.length ? `the book says ${status}, ${FILE} says ${every.at(-1).norm}` : "";
    if (!every.length) return `in the book but not in ${FILE}`;
    const booked = every.filter((sent) => statement && sent.signature === statement[3]), compared = booked.length ? booked : every;
    try {
      if (!compared.some((sent) => isNormBooked(r, number, sent.norm, 1e-5))) {
        return `the book says ${bookedNorm(r, number)}, ${FILE} says ${compared.at(-1).norm} (weight ${effectiveWeight(r, number)})`;
      }
    } catch (error) {
      return `the book cannot be compared with ${FILE} (${error.message})`; // a wrong round may lack what is needed
    }
    return !booked.length && every.some((sent) => sent.signature) ? `the book does not hold the statement that is signed in ${FILE}` : "";
  }

  // Compare what is not in the book, and the receipts with the book as a whole. Args: the operator's public
  // key; without one, those that the book's terms name.
  async finish(signer) {
    const { result, terms } = this.chain;
    if (!this.tookPart) result.add("mine", 0, `${this.member} takes part in no round of the book`);
    else {
      const here = [...this.sent.keys()].filter((key) => this.sentIn(key).length);
      if (this.sent.size && !here.length) result.add("mine", 0, `${FILE} holds nothing of the federation ${result.federation}`);
      for (const key of here) if (!this.booked.has(key)) this.wrong(key, `in ${FILE} but not in the book`);
    }
    const keys = signer ? [signer] : terms.map((each) => each.operator).filter(Boolean);
    for (const [k, text] of this.receipts.entries()) {
      try {
        await this.checkReceipt(text, keys);
      } catch (error) {
        const { kind, message } = error instanceof Wrong ? error : new Wrong("form", `cannot be checked (${error.message})`);
        result.add(kind, 0, `receipt ${k + 1} of ${FILE}: ${message}`);
      }
    }
  }

  // A receipt is valid and signed, and the book is the one that the operator signed.
  async checkReceipt(text, keys) {
    const { index, data, note } = await readProof(text), r = decode(data);
    if (r.federation !== this.chain.result.federation) return;
    if (!(await isSignedByOne(note, keys))) {
      throw new Wrong("signature", `is not signed by ${keys.join(", ") || "anybody: the book names no operator, give its key"}`);
    }
    if (r.kind !== "round") throw new Wrong("checkpoint", "is not of a round");
    const key = roundKey(r), number = this.account(r), { chain } = this;
    const words = `${nameOf(key)}: ${await this.statement(r, number, index + 1n)}; the operator signed that it ${inWords(r, number)} (record ${index + 1n})`;
    const isSame = note.origin === chain.origin && note.size <= BigInt(chain.leaves.length) && same(note.root, await chain.rootAt(Number(note.size)));
    if (!isSame) throw new Wrong("fork", `${words}; this book is another one, in which it ${this.booked.get(key) ?? "does not have the round"}`);
    chain.result.proven.push(words);
  }

  // The member's account: that of its own signature, or the one with its name.
  account(r) {
    const signed = this.sentIn(roundKey(r)).map((sent) => sent.signature);
    for (const [number, statement] of r.statements) if (signed.includes(statement[3])) return number;
    const named = r.accounts.find((number) => this.isMine(number));
    if (named === undefined) throw new Wrong("mine", `round ${r.round} does not name ${this.member}`);
    return named;
  }

  // What the member signed for a round, in words, if its key at that record says so. Of several statements
  // it is the one that the round holds, or the last one.
  async statement(r, number, sequence) {
    const key = keyAt(this.chain.accounts.get(number), sequence), booked = r.statements.get(number)?.[3];
    const every = this.sentIn(roundKey(r)).sort((a, b) => (a.signature === booked) - (b.signature === booked)).reverse();
    for (const { statement, signature } of every) {
      if (!key || !(await isBy(key, statement, signature))) continue;
      const words = said(statement);
      return `${this.member} signed that it sent ${(words.get("sent") ?? "").slice(0, 16)}… of squared norm ${words.get("norm")} from ${words.get("examples")} examples`;
    }
    return `${this.member} has no statement signed by its key in this book`;
  }

  isMine(number) {
    const account = this.chain.accounts.get(number);
    return account !== undefined && (account.member === this.member || account.label === this.member);
  }

  wrong(key, words) {
    const { result } = this.chain;
    result.add("mine", result.records, `${nameOf(key)}: ${words}`);
  }
}

// How a round books a member.
export function inWords(r, number) {
  const amount = r.amounts[r.accounts.indexOf(number)];
  if (amount === undefined) throw new RangeError(`account ${number} is not in the round`);
  return `is booked as ${r.statuses.get(number) ?? "ok"} with the amount ${amount < 0n ? "" : "+"}${amount}`;
}

// The index, the record and the checkpoint of a proof that the record is in the tree.
export async function readProof(text) {
  const [head, rest] = partition(text, "\n\n"), [title, extra, place, ...path] = head.split("\n");
  let data, index, hashes;
  try {
    if (title !== "c2sp.org/tlog-proof@v1" || !extra.startsWith("extra ") || !place.startsWith("index ")) throw new SyntaxError();
    if (!INDEX.test(asciiDigits(place.slice(6)))) throw new SyntaxError();
    [data, index, hashes] = [fromBase64(extra.slice(6)), BigInt(asciiDigits(place.slice(6))), path.map(fromBase64)];
  } catch {
    throw new Wrong("checkpoint", "is not a proof");
  }
  const note = parseNote(rest), leaf = (await sha256(joined(LEAF, data))).raw;
  const root = await rootFromPath(leaf, index, note.size, hashes);
  if (root === null || !same(root, note.root)) throw new Wrong("checkpoint", "does not lead to its checkpoint");
  return { index, data, note };
}

// The root that an inclusion proof leads to (RFC 9162, 2.1.3.2); null if it leads nowhere.
export async function rootFromPath(leaf, index, size, path) {
  if (index < 0n || index >= size) return null;
  let node = index, last = size - 1n, root = leaf;
  for (const other of path) {
    if (!last) return null;
    if (node & 1n || node === last) {
      root = (await sha256(joined(NODE, other, root))).raw;
      while (node && !(node & 1n)) [node, last] = [node >> 1n, last >> 1n];
    } else {
      root = (await sha256(joined(NODE, root, other))).raw;
    }
    [node, last] = [node >> 1n, last >> 1n];
  }
  return last ? null : root;
}

// The key that an account had when a record was booked.
const keyAt = (account, sequence) => account?.keys.findLast(([place]) => place < sequence)?.[1] ?? null;

// The lines of a statement by their first words.
const said = (statement) => new Map(statement.split(BREAK).map((line) => partition(line, " ")));

async function isSignedByOne(note, keys) {
  for (const key of keys) if (await isSigned(note, key)) return true;
  return false;
}

async function isBy(key, text, signature) {
  try {
    return await verifyEd25519(fromBase64(key), encode(text), fromBase64(signature));
  } catch (error) {
    if (error instanceof Wrong) throw error;
    return false; // a signature that is no base64
  }
}

function realNumber(x) {
  const value = typeof x === "number" || (typeof x === "string" && x.trim()) ? Number(x) : NaN;
  if (Number.isNaN(value) && x !== "NaN") throw new SyntaxError("no number");
  return value;
}

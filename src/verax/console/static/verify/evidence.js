// Hashes, signed checkpoints, and norms that a member wrote down itself.
// Mirrors verax/verifier/evidence.py; SHA-256 and Ed25519 are the browser's own.

import { Wrong } from "./forms.js";
import { sum } from "./numbers.js";

export async function sha256(bytes) {
  const raw = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return { raw, hex: hexOf(raw) };
}

export const hexOf = (raw) => Array.from(raw, (byte) => byte.toString(16).padStart(2, "0")).join("");
export const base64Of = (raw) => btoa(String.fromCharCode(...raw));

export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export const same = (a, b) => a.length === b.length && a.every((byte, k) => byte === b[k]);
const encode = (text) => new TextEncoder().encode(text);

// Base64 in exactly one form.
function fromBase64(text) {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) throw new SyntaxError("no base64");
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  if (base64Of(raw) !== text) throw new SyntaxError("no base64");
  return raw;
}

// A checkpoint: the log's name, its size, its root, and signature lines by key name.
export function parseNote(text) {
  try {
    const at = text.indexOf("\n\n"), body = text.slice(0, at), rest = text.slice(at + 2), lines = body.split("\n");
    const [origin, size, root] = lines;
    if (at < 0 || lines.length !== 3 || !/^(?:0|[1-9]\d{0,18})$/.test(size) || !origin || /[\p{C}\p{Z}]/u.test(origin.replaceAll(" ", ""))) throw new SyntaxError();
    const signatures = rest.split("\n").slice(0, -1).map((line) => {
      const [dash, name, signature, ...more] = line.split(" "), raw = fromBase64(signature);
      if (dash !== "—" || more.length || !/^[^\s+]+$/.test(name) || raw.length < 5) throw new SyntaxError();
      return [name, raw];
    });
    if (!rest.endsWith("\n") || !signatures.length || fromBase64(root).length !== 32) throw new SyntaxError();
    return { origin, size: BigInt(size), root: fromBase64(root), text: `${body}\n`, signatures };
  } catch {
    throw new Wrong("checkpoint", "is not a signed checkpoint");
  }
}

// The name, the id and the bytes of a public key name+id+key; null if it is none.
export async function parseKey(text, type) {
  const [name, id, ...rest] = text.split("+");
  try {
    const raw = fromBase64(rest.join("+")), digest = (await sha256(joined(encode(`${name}\n`), raw))).raw.slice(0, 4);
    const valid = /^[^\s+]+$/.test(name) && raw.length === 33 && raw[0] === type && hexOf(digest) === id;
    return valid ? { name, id: digest, key: raw.slice(1) } : null;
  } catch {
    return null;
  }
}

async function isValid(key, message, signature) {
  try {
    const imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", imported, signature, message);
  } catch (error) {
    if (error.name === "NotSupportedError") throw new Wrong("signature", "cannot be checked: this browser does not know Ed25519");
    return false; // a key that is no point of the curve
  }
}

// The signatures of a note by a key, without its id.
async function signaturesBy(note, text, type) {
  const key = await parseKey(text, type);
  if (key === null) return [];
  const own = note.signatures.filter(([name, raw]) => name === key.name && same(raw.slice(0, 4), key.id));
  return own.map(([, raw]) => [key.key, raw.slice(4)]);
}

// Whether the witness with this key signed the checkpoint.
export async function isCosigned(note, text) {
  for (const [key, raw] of await signaturesBy(note, text, 4)) {
    if (raw.length !== 72) continue;
    const time = new DataView(raw.buffer, raw.byteOffset).getBigUint64(0);
    if (time && (await isValid(key, encode(`cosignature/v1\ntime ${time}\n${note.text}`), raw.slice(8)))) return true;
  }
  return false;
}

// The squared norms that a member wrote down itself: lines of {"run", "round", "norm"}.
export class OwnNorms {
  constructor(text, member) {
    [this.member, this.tookPart, this.norms] = [member, false, new Map()];
    text.split("\n").forEach((line, k) => {
      if (!line.trim()) return;
      try {
        const row = JSON.parse(line);
        if (!Number.isFinite(row.norm)) throw new SyntaxError();
        this.norms.set(JSON.stringify([String(row.run), String(row.round)]), row.norm);
      } catch {
        throw new SyntaxError(`your record, line ${k + 1}: must be like {"run": "a", "round": 1, "norm": 2.5}`);
      }
    });
  }

  // What differs between a round and the member's own norm, in words.
  compare(r, accounts) {
    const number = r.accounts.find((n) => [accounts.get(n)?.member, accounts.get(n)?.label].includes(this.member));
    if (number === undefined) return [];
    this.tookPart = true;
    const key = JSON.stringify([r.run, String(r.round)]), norm = this.norms.get(key), name = `round ${r.round} of run ${r.run}`;
    this.norms.delete(key);
    const status = r.statuses.get(number);
    if (status !== undefined) return norm === undefined ? [] : [`${name}: the book says ${status}, your record says ${norm}`];
    if (r.reads === "misreport") return []; // the book holds a distance that others computed
    if (norm === undefined) return [`${name}: in the book but not in your record`];
    const ok = r.accounts.filter((n) => !r.statuses.has(n)), place = ok.indexOf(number);
    const booked = r.reads === "norms" ? r.statistics[r.accounts.indexOf(number)] : r.gram[place][place];
    const weight = effectiveWeight(r.weights.get(number) ?? 1, ok.filter((n) => n !== number).map((n) => r.weights.get(n) ?? 1));
    if (Math.abs(norm * weight ** 2 - booked) <= 1e-5 * Math.max(Math.abs(norm * weight ** 2), Math.abs(booked))) return [];
    return [`${name}: the book says ${booked}, your record says ${norm} (weight ${weight})`];
  }

  // What the member wrote down and the book does not have, in words.
  missing() {
    if (!this.tookPart) return [`${this.member} takes part in no round of the book`];
    return [...this.norms.keys()].map((key) => { const [run, t] = JSON.parse(key); return `round ${t} of run ${run}: in your record but not in the book`; });
  }
}

// (1 + E) w: by how much an update counts; E is the others' number, counted by their weight.
function effectiveWeight(own, others) {
  if (!others.length) return 1;
  const parts = others.map((other) => other / Math.max(...others));
  const number = sum(parts) ** 2 / sum(parts.map((part) => part * part));
  return ((1 + number) * own) / sum([own, ...others]);
}

// Signatures: signed checkpoints, and Ed25519. Mirrors verax/verifier/signatures.py; checkpoints are signed
// notes of C2SP (`tlog-checkpoint`, `tlog-cosignature`), and Ed25519 is the browser's own.

import { encode, fromExactBase64, hexOf, joined, same, sha256 } from "./bytes.js";
import { SPACES, Wrong, isBelowPrime } from "./forms.js";
import { asciiDigits } from "./numbers.js";

const NAME = new RegExp(`^[^${SPACES}+]+$`);
const SIZE = /^(?:0|[1-9]\p{Nd}{0,18})$/u;
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;

export const isPrintable = (text) => !UNPRINTABLE.test(text);

// A checkpoint: the log's name, its size, its root, and signature lines by key name.
export function parseNote(text) {
  try {
    const [body, rest] = partition(text, "\n\n"), lines = body.split("\n"), [origin, size, root] = lines;
    if (lines.length !== 3 || !SIZE.test(size) || !origin || !isPrintable(origin)) throw new SyntaxError();
    const signatures = rest.split("\n").slice(0, -1).map((line) => {
      const [dash, name, signature, ...more] = line.split(" "), raw = fromExactBase64(signature);
      if (dash !== "—" || more.length || !NAME.test(name) || raw.length < 5) throw new SyntaxError();
      return [name, raw];
    });
    if (!rest.endsWith("\n") || !signatures.length || fromExactBase64(root).length !== 32) throw new SyntaxError();
    return { origin, size: BigInt(asciiDigits(size)), root: fromExactBase64(root), text: `${body}\n`, signatures };
  } catch {
    throw new Wrong("checkpoint", "is not a signed checkpoint");
  }
}

// What stands before and after the first occurrence of a word; the second is empty if there is none.
export function partition(text, word) {
  const at = text.indexOf(word);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + word.length)];
}

// The name, the id and the bytes of a public key name+id+key; null if it is none.
export async function parseKey(text, type) {
  const [name, id, ...rest] = text.split("+");
  try {
    const raw = fromExactBase64(rest.join("+")), digest = (await sha256(joined(encode(`${name}\n`), raw))).raw.slice(0, 4);
    const valid = NAME.test(name) && raw.length === 33 && raw[0] === type && hexOf(digest) === id;
    return valid ? { name, id: digest, key: raw.slice(1) } : null;
  } catch {
    return null;
  }
}

// Whether the operator with this key signed the checkpoint.
export async function isSigned(note, text) {
  for (const [key, raw] of await signaturesBy(note, text, 1)) {
    if (await verifyEd25519(key, encode(note.text), raw)) return true;
  }
  return false;
}

// Whether the witness with this key signed the checkpoint.
export async function isCosigned(note, text) {
  return (await cosignature(note, text)) !== null;
}

// Time and signature of the witness with this key; null if it did not sign.
export async function cosignature(note, text) {
  for (const [key, raw] of await signaturesBy(note, text, 4)) {
    if (raw.length !== 72) continue;
    const time = new DataView(raw.buffer, raw.byteOffset).getBigUint64(0);
    if (time && (await verifyEd25519(key, encode(`cosignature/v1\ntime ${time}\n${note.text}`), raw.slice(8)))) return raw;
  }
  return null;
}

// The signatures of a note by a key, without its id.
async function signaturesBy(note, text, type) {
  const key = await parseKey(text, type);
  if (key === null) return [];
  const own = note.signatures.filter(([name, raw]) => name === key.name && same(raw.slice(0, 4), key.id));
  return own.map(([, raw]) => [key.key, raw.slice(4)]);
}

// Whether the signature is that of the key under the message.
export async function verifyEd25519(key, message, signature) {
  if (!isOnePoint(key) || signature.length !== 64) return false;
  try {
    const imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", imported, signature, message);
  } catch (error) {
    if (error.name === "NotSupportedError") throw new Wrong("signature", "cannot be checked: this browser does not know Ed25519");
    return false; // a key that is no point of the curve
  }
}

// Whether a key is written as RFC 8032 demands: browsers also accept a second way to write some points.
function isOnePoint(raw) {
  if (raw.length !== 32 || !isBelowPrime(raw)) return false;
  const one = raw[0] === 1 && raw.subarray(1, 31).every((byte) => byte === 0);
  const minusOne = raw[0] === 0xec && raw.subarray(1, 31).every((byte) => byte === 0xff);
  const zeroX = (one && raw[31] === 0x80) || (minusOne && raw[31] === 0xff); // x = 0 has no sign
  return !zeroX;
}

// Check an export completely, in this browser: mirrors `verax ledger verify EXPORT`. Nothing is asked of
// a server. Mirrors verax/verifier/sources.py.

import { base64Of, encode, same } from "./bytes.js";
import { Chain, Verification } from "./chain.js";
import { OwnRecord } from "./mine.js";
import { isCosigned, isSigned, parseNote } from "./signatures.js";

const NEWLINE = 10;
const END = '{"end"';
const startsWith = (line, word) => new TextDecoder("latin1").decode(line.slice(0, word.length)) === word;

// Args: the export's bytes; earlier checkpoints as { name, text }; the operator's public key that checkpoints
// and receipts must be signed with, receipts by default with those that the terms name; public keys of
// witnesses that must have signed the checkpoints, too; a member's own evidence { text, member }; progress is
// called with the number of lines read, and may wait to let the page breathe.
export async function verify(bytes, { checkpoints = [], signer = null, witnesses = [], mine = null, progress = null } = {}) {
  const result = new Verification(), chain = new Chain(result), own = mine && new OwnRecord(mine.text, mine.member, chain);
  let ended = false, number = 0;
  for (let at = 0; at < bytes.length; ) {
    const newline = bytes.indexOf(NEWLINE, at), whole = newline >= 0, next = whole ? newline + 1 : bytes.length;
    const line = bytes.subarray(at, whole ? newline : next);
    at = next;
    number += 1;
    if (ended) {
      result.add("added", result.records, `line ${number}: after the end of the export`);
      break;
    }
    if (startsWith(line, END)) {
      ended = true;
      await checkEnd(chain, line, whole);
      continue;
    }
    if (!whole) result.add("missing", result.records, `line ${number}: cut off`);
    const record = await chain.check(line);
    if (own && record?.kind === "round") own.compare(record);
    if (progress && number % 100 === 0) await progress(number, at / bytes.length);
  }
  if (!ended) result.add("missing", result.records, "the export has no last line: it was cut off");
  await chain.finish();
  for (const each of checkpoints) await compare(chain, each, signer, witnesses);
  await own?.finish(signer);
  return asJson(result);
}

// The last line of an export: size, hash and root of the records before it.
async function checkEnd(chain, line, whole) {
  const size = chain.leaves.length, root = base64Of(await chain.rootAt(size));
  const right = `{"end": ${size}, "hash": "${chain.result.hash}", "root": "${root}"}`;
  if (!whole || !same(line, encode(right))) chain.result.add("missing", 0, `the last line does not fit the ${size} records`);
}

// Compare a checkpoint that a member kept with the book.
async function compare(chain, { name, text }, signer, witnesses) {
  const { result } = chain;
  let note;
  try {
    note = parseNote(text.replace(/\r\n?/g, "\n")); // an editor may have changed its line breaks
  } catch {
    result.add("checkpoint", 0, `${name}: not a signed checkpoint`);
    return;
  }
  result.checkpoints += 1;
  if (signer && !(await isSigned(note, signer))) result.add("signature", 0, `${name}: not signed by ${signer}`);
  for (const key of witnesses) if (!(await isCosigned(note, key))) result.add("signature", 0, `${name}: not signed by the witness ${key}`);
  const size = chain.leaves.length;
  if (note.origin !== chain.origin) {
    result.add("fork", 0, `${name} is a checkpoint of another book, ${note.origin}`);
  } else if (note.size > BigInt(size)) {
    result.add("fork", note.size, `the book ends at record ${size}, ${name} was made at record ${note.size}: records were removed`);
  } else if (!same(note.root, await chain.rootAt(Number(note.size)))) {
    result.add("fork", note.size, `the first ${note.size} records are not those of ${name}: history was rewritten, or you see another book`);
  }
}

// The same fields as `verax ledger verify --json`; amounts are texts, because they may be large.
function asJson(result) {
  return {
    federation: result.federation,
    ok: result.ok,
    records: Number(result.records),
    rounds: result.rounds,
    entries: result.entries,
    hash: result.hash,
    root: base64Of(result.root),
    checkpoints: result.checkpoints,
    balances: Object.fromEntries([...result.balances].map(([member, units]) => [member, String(units)])),
    wrong: result.wrong,
    unchecked: result.unchecked,
    decisions: result.decisions,
    findings: result.findings,
    proven: result.proven,
  };
}

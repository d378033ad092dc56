// What a right book fulfils: each check is one function with one sentence. A check throws Wrong with what
// it found instead. Mirrors verax/verifier/checks.py.

import { isCosigned, parseNote, same } from "./evidence.js";
import { Wrong, asSeen } from "./forms.js";
import { checkCharge, checkInputs, toUnits } from "./payments.js";
import { Terms } from "./terms.js";

const plus = (a, b) => a + b;
export const roundKey = (r) => JSON.stringify([r.run, String(r.round)]);

// Each record has the next sequence number and contains the hash of the one before it.
function follows(chain, r) {
  const place = chain.result.records + 1n;
  if (r.sequence > place) throw new Wrong("missing", `records ${place} to ${r.sequence - 1n} are missing`);
  if (r.sequence < place) throw new Wrong("added", `comes again after record ${place - 1n}`);
  if (r.previous !== chain.result.hash) throw new Wrong("chain", "does not follow the one before it");
}

// All records belong to one federation, and the first one founds it.
function belongs(chain, r) {
  chain.result.federation ||= r.federation;
  if (r.federation !== chain.result.federation) throw new Wrong("chain", `belongs to ${r.federation}`);
  if ((r.kind === "founding") !== !chain.terms.length) throw new Wrong("chain", `kind ${r.kind} is not allowed here`);
}

// New terms are valid and keep currency and scale.
async function termsKeepTheMoney(chain, r) {
  const terms = await Terms.read(r.terms, r.from_round ?? 1n, r.sequence), first = chain.terms[0];
  if (first && (terms.currency !== first.currency || terms.scale !== first.scale)) throw new Wrong("terms", "currency or scale changed");
}

// New terms come with the notice that the terms before them demand.
function noticeIsGiven(chain, r) {
  const { notice } = chain.changes, last = chain.lastRound;
  if (notice && last && r.from_round <= last + notice) throw new Wrong("notice", `new terms from round ${r.from_round} on came without notice`);
}

// Where the terms demand it, enough witnesses have signed the book before a decision.
function quorumHasSigned(chain, r) {
  const { witnesses, cosigned, quorum } = chain.changes;
  const signed = witnesses.filter((key) => (chain.cosigned.get(key) ?? 0n) >= chain.lastDecision).length;
  if (cosigned.includes(r.kind) && signed < quorum) throw new Wrong("quorum", `${signed} of ${quorum} witnesses signed before it`);
}

// Accounts are numbered in order and belong to one member each.
function accountIsItsOwn(chain, r) {
  const known = [...chain.accounts].find(([, each]) => each.member === r.member);
  if (r.account !== (known ? known[0] : BigInt(chain.accounts.size))) throw new Wrong("account", `account ${r.account} is not that of ${r.member}`);
}

// No two members have names that look the same.
function nameIsDistinct(chain, r) {
  for (const name of [r.member, r.label]) {
    if ((chain.names.get(asSeen(name)) ?? r.account) !== r.account) throw new Wrong("account", `${name} looks like another member's name`);
  }
}

// Only members that the terms list join a closed federation.
function memberIsListed(chain, r) {
  const listed = chain.terms.flatMap((terms) => terms.members);
  if (chain.terms.at(-1).members.length && !listed.includes(r.member) && !listed.includes(r.label)) throw new Wrong("member", `${r.member} is not listed by the terms`);
}

// Records refer to accounts that exist.
function accountsExist(chain, r) {
  for (const number of r.accounts ?? [r.account]) {
    if (number !== null && !chain.accounts.has(number)) throw new Wrong("account", `account ${number} does not exist`);
  }
}

// No two runs have names that look the same.
function runIsDistinct(chain, r) {
  if ((chain.runs.get(asSeen(r.run)) ?? r.run) !== r.run) throw new Wrong("form", `run ${r.run} looks like another run`);
}

// Every round is booked once, and opened at most once before that.
function roundIsNew(chain, r) {
  if (chain.rounds.has(roundKey(r))) throw new Wrong("repeated", `round ${r.round} of run ${r.run} is in the book already`);
  if (r.kind === "opening" && chain.opened.has(roundKey(r))) throw new Wrong("repeated", `round ${r.round} of run ${r.run} is opened twice`);
}

// A round is opened with the terms in force, and charged by those of its opening.
function termsAreThoseInForce(chain, r) {
  const terms = chain.termsOf(r);
  terms.price(r.round);
  if (r.terms !== terms.hash) throw new Wrong("terms", `round ${r.round}: other terms than those that apply to it`);
}

// Everybody in a round is a member at that time.
function participantsAreMembers(chain, r) {
  for (const number of r.accounts) {
    const account = chain.accounts.get(number);
    if (account && !mayTakePart(account, r)) throw new Wrong("member", `${account.member} is not a member in round ${r.round}`);
  }
}

function mayTakePart({ joined, left }, { run, round }) {
  const here = (which) => which === null || which === run;
  if (here(joined.run) && round < joined.round) return false;
  return left === null || (here(left.run) && round < left.round);
}

// A round records exactly what its rule reads, with the weights of the terms.
function inputsAreComplete(chain, r) {
  checkInputs(chain.termsOf(r), r, chain.accounts);
}

// Payments follow from inputs and terms, up to rounding.
function paymentsFollow(chain, r) {
  checkCharge(chain.termsOf(r), r, chain.accounts);
}

// Amounts follow exactly from the payments and the remainders carried so far.
function amountsFollow(chain, r) {
  const before = r.accounts.map((number) => chain.carried.get(number));
  if (before.includes(undefined)) throw new TypeError("an account that nobody has");
  r.carried = before;
  const [units, after] = toUnits(r.payments, chain.termsOf(r).scale, before);
  r.carried = after;
  if (units.length !== r.amounts.length || units.some((unit, k) => unit !== r.amounts[k])) throw new Wrong("amount", `round ${r.round}: amounts do not follow from the payments`);
}

// Entries are in the order of their accounts and sum to zero.
function entriesBalance(chain, r) {
  if (r.accounts.some((number, k) => k && r.accounts[k - 1] >= number)) throw new Wrong("form", "accounts are not in ascending order");
  const total = r.amounts.reduce(plus, 0n);
  if (total) throw new Wrong("unbalanced", `entries sum to ${total}, must sum to zero`);
}

// Every reference is used once.
function referenceIsNew(chain, r) {
  if (chain.references.has(r.reference)) throw new Wrong("repeated", `the reference ${r.reference} is in the book already`);
}

// A deposit is between a member and escrow, and not zero.
function depositIsInEscrow(chain, r) {
  if (r.accounts.length !== 2 || r.accounts[0] !== 0n || !r.amounts[0]) throw new Wrong("entry", "a deposit must be between a member and escrow");
}

// A correction has a reason, moves something, and refers only to an earlier record.
function correctionIsExplained(chain, r) {
  if (!r.reason.trim() || !r.amounts.some(Boolean)) throw new Wrong("form", "a correction without a reason or without an amount");
  if (r.corrects !== null && r.corrects >= r.sequence) throw new Wrong("form", `corrects record ${r.corrects}, which is not earlier`);
}

// A settlement's amounts are the sums of its transfers, each of a positive amount.
function settlementIsItsTransfers(chain, r) {
  const sums = new Map(), add = (number, amount) => sums.set(number, (sums.get(number) ?? 0n) + amount);
  for (const [payer, receiver, amount] of r.transfers) {
    if (payer === receiver || !amount) throw new Wrong("entry", "a transfer moves no money");
    add(payer, -amount);
    add(receiver, amount);
  }
  const right = sums.size === r.accounts.length && r.accounts.every((number, k) => sums.get(number) === r.amounts[k]);
  if (!sums.size || !right) throw new Wrong("entry", "the amounts are not the sums of the transfers");
}

// A checkpoint states the root that the book had, signed by a witness of the terms.
async function checkpointIsOfThisBook(chain, r) {
  const note = parseNote(r.note);
  if (note.origin !== chain.origin || note.size < 1n || note.size > chain.result.records) throw new Wrong("checkpoint", "is a checkpoint of another book");
  if (!same(note.root, await chain.rootAt(Number(note.size)))) throw new Wrong("fork", "is a checkpoint of another history of this book");
  for (const key of chain.changes.witnesses) if (await isCosigned(note, key)) return;
  throw new Wrong("signature", "has no valid signature of a witness that the terms name");
}

const EVERY = [follows, belongs];
const MONEY = [accountsExist, entriesBalance, referenceIsNew];
const ROUND = [runIsDistinct, roundIsNew, termsAreThoseInForce];
const CHECKS = {
  founding: [termsKeepTheMoney],
  terms: [termsKeepTheMoney, noticeIsGiven, quorumHasSigned],
  join: [accountIsItsOwn, nameIsDistinct, memberIsListed],
  leave: [accountsExist],
  limit: [accountsExist],
  opening: ROUND,
  round: [...ROUND, accountsExist, entriesBalance, participantsAreMembers, amountsFollow, inputsAreComplete, paymentsFollow],
  deposit: [...MONEY, depositIsInEscrow],
  correction: [...MONEY, correctionIsExplained, quorumHasSigned],
  settlement: [...MONEY, settlementIsItsTransfers, quorumHasSigned],
  checkpoint: [checkpointIsOfThisBook],
};
export const checksOf = (kind) => [...EVERY, ...CHECKS[kind]];

// What somebody decided on with a record, in words; empty if it follows from others.
export function decision(chain, r) {
  const amounts = () => {
    const named = r.accounts.flatMap((n, k) => (chain.accounts.has(n) ? [`${chain.accounts.get(n).label} ${r.amounts[k] < 0n ? "" : "+"}${r.amounts[k]}`] : []));
    return named.slice(0, 5).join(", ") + (named.length > 5 ? `, and ${named.length - 5} more` : "");
  };
  if (r.kind === "terms") return `new terms from round ${r.from_round} on`;
  if (!["deposit", "correction", "settlement"].includes(r.kind)) return "";
  return `${r.kind} ${r.reference}: ${amounts()}${r.kind === "correction" ? ` (${r.reason})` : ""}`;
}

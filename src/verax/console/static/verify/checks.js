// What a right book fulfils: each check is one function with one sentence. A check throws Wrong with what
// it found instead. Mirrors verax/verifier/checks.py.

import { same } from "./bytes.js";
import { checkStatements } from "./evidence.js";
import { Wrong, asSeen, isBlank } from "./forms.js";
import { checkCharge, checkInputs, toUnits } from "./payments.js";
import { isCosigned, parseNote } from "./signatures.js";
import { ascending, checkReport } from "./spot.js";
import { Terms } from "./terms.js";

const plus = (a, b) => a + b;
export const roundKey = ({ run, round }) => JSON.stringify([run, String(round)]);

// ---- checks of every record

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

// ---- checks by kind

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
  if (!witnesses.length) return;
  const signed = witnesses.filter((key) => (chain.cosigned.get(key) ?? 0n) >= chain.lastDecision).length;
  const kinds = [r.kind, ...specialDecisions(chain, r)].filter((kind) => cosigned.includes(kind)).sort();
  if (kinds.length && signed < quorum) throw new Wrong("quorum", `${signed} of ${quorum} witnesses signed before it (${kinds[0]})`);
}

// Decisions that are no kind of record: a new key, a skipped round, a time before the last.
function specialDecisions(chain, r) {
  const found = {
    key: r.kind === "join" && changesKey(chain, r),
    skip: r.kind === "round" && r.round > 1n && !chain.rounds.has(roundKey({ run: r.run, round: r.round - 1n })),
    time: r.time < chain.time,
  };
  return Object.keys(found).filter((name) => found[name]);
}

function changesKey(chain, r) {
  const account = chain.accounts.get(r.account);
  return account !== undefined && account.key !== r.key;
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

// No two members have the same key: nobody can pass off another's statement as its own.
function keyIsItsOwn(chain, r) {
  if ((chain.keys.get(r.key) ?? r.account) !== r.account) throw new Wrong("account", `the key of ${r.member} is another member's`);
}

// Only members that the terms list join a closed federation.
function memberIsListed(chain, r) {
  const listed = chain.terms.flatMap((terms) => terms.members);
  if (chain.terms.at(-1).members.length && !listed.includes(r.member) && !listed.includes(r.label)) throw new Wrong("member", `${r.member} is not listed by the terms`);
}

// Records refer to accounts that exist.
function accountsExist(chain, r) {
  for (const number of ascending((r.accounts ?? [r.account]).filter((n) => n !== null))) {
    if (!chain.accounts.has(number)) throw new Wrong("account", `account ${number} does not exist`);
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

// What members signed agrees with the round, and everybody signed who has to.
async function statementsAreSigned(chain, r) {
  const terms = chain.termsOf(r), opening = chain.checked.get(r.run)?.openings.get(r.round) ?? "";
  if (r.statements.size || terms.signed === "required") await checkStatements(terms, r, chain.accounts, opening);
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
  const [units, after] = toUnits(r.payments, chain.terms[0].scale, before);
  r.carried = after;
  if (units.length !== r.amounts.length || units.some((unit, k) => unit !== r.amounts[k])) throw new Wrong("amount", "amounts do not follow from the payments");
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
  if (isBlank(r.reason) || !r.amounts.some(Boolean)) throw new Wrong("form", "a correction without a reason or without an amount");
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
  const booked = new Map(r.accounts.map((number, k) => [number, r.amounts[k]]));
  const right = sums.size === booked.size && [...booked].every(([number, amount]) => sums.get(number) === amount);
  if (!sums.size || !right) throw new Wrong("entry", "the amounts are not the sums of the transfers");
}

// A checkpoint states the root that the book had, signed by a witness of the terms.
async function checkpointIsOfThisBook(chain, r) {
  const note = parseNote(r.note);
  if (note.origin !== chain.origin || note.size < 1n || note.size > chain.result.records) throw new Wrong("checkpoint", "is a checkpoint of another book");
  const there = note.size <= BigInt(chain.leaves.length); // a record may claim a place that is not its own
  if (!there || !same(note.root, await chain.rootAt(Number(note.size)))) throw new Wrong("fork", "is a checkpoint of another history of this book");
  for (const key of chain.changes.witnesses) if (await isCosigned(note, key)) return;
  throw new Wrong("signature", "has no valid signature of a witness that the terms name");
}

// After its closing a run has no rounds any more.
function runIsOpen(chain, r) {
  if (chain.checked.get(r.run)?.closing) throw new Wrong("closed", `run ${r.run} was closed before`);
}

// A run with spot checks is closed once, by a beacon or by witnesses that will draw.
function closingSaysWhatDraws(chain, r) {
  const run = chain.checked.get(r.run);
  if (!run?.terms || run.closing) throw new Wrong("spot", `run ${r.run} has no spot checks or is closed already`);
  if (isBlank(r.beacon) && !chain.changes.witnesses.length) throw new Wrong("spot", "neither a beacon nor witnesses will draw the rounds");
}

// The drawn rounds follow from the randomness that the closing record announced.
async function drawFollows(chain, r) {
  const run = chain.checked.get(r.run);
  if (!run?.terms || !run.closing || run.draw) throw new Wrong("spot", `run ${r.run} is not closed, or drawn already`);
  if (isBlank(run.beacon) && r.value !== run.value) throw new Wrong("draw", "the value is not that of the witnesses' signatures");
  if (!(await run.isDrawn(r))) throw new Wrong("draw", "the drawn rounds do not follow from the value");
}

// A report is signed by the auditor, holds the drawn rounds, and is fined by the terms.
async function reportIsRight(chain, r) {
  await checkReport(chain.checked.get(r.run), r, chain.terms[0].scale);
}

const EVERY = [follows, belongs];
const MONEY = [accountsExist, entriesBalance, referenceIsNew];
const ROUND = [runIsDistinct, runIsOpen, roundIsNew, termsAreThoseInForce];
const CHECKS = {
  founding: [termsKeepTheMoney],
  terms: [termsKeepTheMoney, noticeIsGiven],
  join: [accountIsItsOwn, nameIsDistinct, keyIsItsOwn, memberIsListed],
  leave: [accountsExist],
  limit: [accountsExist],
  opening: ROUND,
  round: [...ROUND, accountsExist, entriesBalance, participantsAreMembers, amountsFollow, inputsAreComplete, statementsAreSigned, paymentsFollow],
  deposit: [...MONEY, depositIsInEscrow],
  correction: [...MONEY, correctionIsExplained],
  settlement: [...MONEY, settlementIsItsTransfers],
  checkpoint: [checkpointIsOfThisBook],
  closing: [closingSaysWhatDraws],
  draw: [drawFollows],
  "spot-check": [accountsExist, entriesBalance, amountsFollow, reportIsRight],
};
const DECISIONS = {
  join: newKeyOrCommitment,
  terms: (chain, r) => `new terms from round ${r.from_round} on`,
  deposit: (chain, r) => `deposit ${r.reference}: ${amountsOf(chain, r)}`,
  correction: (chain, r) => `correction ${r.reference}: ${amountsOf(chain, r)} (${r.reason})`,
  settlement: (chain, r) => `settlement ${r.reference}: ${amountsOf(chain, r)}`,
  closing: (chain, r) => `run ${r.run} is closed; ${r.beacon || "signatures of witnesses"} will draw`,
  draw: (chain, r) => `the rounds of run ${r.run} were drawn by ${r.value}`,
  "spot-check": (chain, r) => `the auditor reports ${r.outcome} on ${chain.accounts.get(r.account).label}${r.reason ? `: ${r.reason}` : ""}: ${amountsOf(chain, r)}`,
};

// The checks of a record of this kind.
export function checksOf(kind) {
  const own = [...EVERY, ...CHECKS[kind]];
  return kind === "founding" || kind === "checkpoint" ? own : [...own, quorumHasSigned]; // before witnesses are named, and what they signed
}

// What somebody decided on with a record, in words; empty if it follows from others.
export const decision = (chain, r) => DECISIONS[r.kind]?.(chain, r) ?? "";

function newKeyOrCommitment(chain, r) {
  if (changesKey(chain, r)) return `${r.label} has another key`;
  const old = chain.accounts.get(r.account)?.commitment;
  if (old && (old.data !== r.data || old.app !== r.app)) return `${r.label} commits to other data or another app, for runs that begin later`;
  return "";
}

function amountsOf(chain, r) {
  const named = r.accounts.flatMap((n, k) => (chain.accounts.has(n) ? [`${chain.accounts.get(n).label} ${r.amounts[k] < 0n ? "" : "+"}${r.amounts[k]}`] : []));
  return named.slice(0, 5).join(", ") + (named.length > 5 ? `, and ${named.length - 5} more` : "");
}

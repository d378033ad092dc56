// The terms of a round, read as strictly as the writer reads them; and what the rules measure.
// Mirrors verax/verifier/terms.py.

import { encode, sha256 } from "./bytes.js";
import { MAX_AMOUNT, Wrong } from "./forms.js";
import { fsum, powerOfTen, sum } from "./numbers.js";
import { isPrintable, parseKey } from "./signatures.js";
import { parseToml } from "./toml.js";

const ACTIONS = ["excuse", "flat-fee", "largest"];
const WEIGHTS = ["equal", "reported", "fixed"];
const HEX = /^[0-9a-f]{64}$/;
const SPOT_FEES = ["refused", "mismatch", "missing"];
const DECIDED = ["settlement", "correction", "terms", "deposit", "key", "skip", "time"];
const NAME = "[A-Za-z_][\\p{L}\\p{N}_.]*";
const OWN_RULE = new RegExp(`^${NAME}:${NAME}$`, "u");

export class Terms {
  // Terms from their TOML; `sequence` is the record that introduced them.
  static async read(text, fromRound, sequence) {
    const terms = new Terms();
    let table;
    try {
      table = parseToml(text);
      await terms.load(table);
    } catch (error) {
      if (error instanceof Wrong) throw error;
      throw new Wrong("terms", `the terms cannot be read (${String(error.message).slice(0, 80)})`);
    }
    terms.hash = (await sha256(encode(text))).hex;
    [terms.fromRound, terms.sequence] = [fromRound, sequence];
    const [reads, measure] = RULES[terms.rule] ?? [null, null];
    [terms.reads, terms.measure] = [reads, measure]; // null: any input, and an unknown rule
    return terms;
  }

  async load(table) {
    const known = ["price", "rule", "members", "allowances", "weights", "policy", "currency", "scale", "arrays", "worth", "changes", "evidence", "spot", "audited", "openness"];
    fields(table, known, ["price"]);
    const get = (key, otherwise) => (table.has(key) ? table.get(key) : otherwise);
    this.rule = string(get("rule", "squared-norm"));
    must(Object.hasOwn(RULES, this.rule) || OWN_RULE.test(this.rule), "rule");
    this.members = strings(get("members", []));
    must(new Set(this.members).size === this.members.length && !this.members.includes(""), "members");
    this.scale = integer(get("scale", 6n));
    this.currency = string(get("currency", "credits"));
    must(this.currency.trim() && isPrintable(this.currency), "currency");
    must(this.scale >= 0n && this.scale <= 18n, "scale");
    this.loadPrice(table.get("price"));
    this.loadWeights(get("weights", new Map()));
    this.loadPolicy(get("policy", new Map()));
    this.allowances = rows(get("allowances", []));
    if (this.allowances.length) {
      checkRows(this.allowances, this.allowances.length > 1 ? this.starts.length : 1, -Infinity);
      for (const row of this.allowances) {
        must(row.length === this.members.length, "allowances");
        must(Math.abs(sum(row)) <= 1e-9 * sum(row.map(Math.abs)), "allowances");
      }
    }
    const worth = numbers(get("worth", []));
    must([0, 1, this.members.length].includes(worth.length), "worth");
    must(worth.every((x) => Number.isFinite(x) && x > 0), "worth");
    const arrays = get("arrays", new Map());
    fields(arrays, ["uncharged"]);
    must(!strings(arrays.get("uncharged") ?? []).includes(""), "arrays");
    await this.loadChanges(get("changes", new Map()));
    await this.loadEvidence(get("evidence", new Map()));
    await this.loadSpot(get("spot", null));
    const openness = get("openness", new Map());
    fields(openness, ["amounts", "norms"]);
    must([...openness.values()].every((shown) => shown === "own" || shown === "all"), "openness");
    if (table.has("audited")) checkAudited(table.get("audited"));
    const limit = Number(MAX_AMOUNT) / powerOfTen(this.scale);
    const sizes = [...[...this.prices, ...this.allowances].flat().map(Math.abs), ...SPOT_FEES.map((name) => this.spot?.[name] ?? 0)];
    must(Math.max(...sizes, this.policy.fee) <= limit && this.last <= MAX_AMOUNT, "price");
  }

  loadPrice(price) {
    fields(price, ["values", "starts", "discount", "rounds"], ["values"]);
    this.prices = rows(price.get("values"));
    this.starts = lists(price.get("starts") ?? [1n]).map(integer);
    this.discount = real(price.get("discount") ?? 0);
    this.last = integer(price.get("rounds") ?? 0n);
    checkRows(this.prices, this.starts.length, 0);
    must(this.discount >= 0 && this.discount < 1, "price.discount");
    must(this.last >= 1n || !(this.discount || this.starts.length > 1), "price.rounds");
    checkBlocks(this.starts, this.last || 1n);
    must(this.prices.every((row) => [1, this.members.length].includes(row.length)), "price.values");
  }

  loadWeights(weights) {
    fields(weights, ["kind", "values", "fewest", "most"]);
    this.weights = weights.get("kind") ?? "reported";
    this.weightValues = numbers(weights.get("values") ?? []);
    must(WEIGHTS.includes(this.weights) && (this.weights === "fixed") === this.weightValues.length > 0, "weights");
    must(this.weightValues.every((x) => Number.isFinite(x) && x > 0), "weights.values");
    must([0, 1, this.members.length].includes(this.weightValues.length), "weights.values");
    const fewest = integer(weights.get("fewest") ?? 1n), most = integer(weights.get("most") ?? 10n ** 9n);
    must(fewest >= 1n && fewest <= most && most <= 2n ** 53n, "weights.most");
    this.counts = { fewest, most };
  }

  loadPolicy(policy) {
    fields(policy, ["missing", "rejected", "error", "fee", "outside"]);
    const given = { missing: "excuse", rejected: "largest", error: "", fee: 0, outside: "warn", ...Object.fromEntries(policy) };
    if (given.error === "") given.error = given.missing; // an error costs what silence costs
    const actions = [given.missing, given.rejected, given.error];
    must(actions.every((action) => ACTIONS.includes(action)), "policy");
    must(["warn", "stop"].includes(given.outside), "policy.outside");
    given.fee = real(given.fee);
    must(Number.isFinite(given.fee) && given.fee >= 0 && (given.fee || !actions.includes("flat-fee")), "policy.fee");
    this.policy = given;
  }

  async loadChanges(changes) {
    fields(changes, ["notice_rounds", "witnesses", "quorum", "cosigned"]);
    const notice = integer(changes.get("notice_rounds") ?? 0n), quorum = integer(changes.get("quorum") ?? 0n);
    const witnesses = strings(changes.get("witnesses") ?? []), cosigned = strings(changes.get("cosigned") ?? ["settlement"]);
    must(notice >= 0n && notice <= 10n ** 9n, "changes.notice_rounds");
    must(BigInt(witnesses.length > 0) <= quorum && quorum <= BigInt(witnesses.length), "changes.quorum");
    must(new Set(witnesses).size === witnesses.length, "changes.witnesses");
    for (const key of witnesses) must(await parseKey(key, 4), "changes.witnesses");
    must(new Set(cosigned).size === cosigned.length && cosigned.every((kind) => DECIDED.includes(kind)), "changes.cosigned");
    this.changes = { notice, witnesses, quorum: Number(quorum), cosigned };
  }

  async loadEvidence(evidence) {
    fields(evidence, ["signed", "operator"]);
    this.signed = string(evidence.get("signed") ?? "none");
    this.operator = string(evidence.get("operator") ?? "");
    must(["none", "optional", "required"].includes(this.signed), "evidence.signed");
    must(!this.operator || (await parseKey(this.operator, 1)), "evidence.operator");
  }

  async loadSpot(spot) {
    this.spot = null;
    if (spot === null) return;
    fields(spot, ["auditor", "fine", "rounds", "tolerance", ...SPOT_FEES], ["auditor", "fine"]);
    const fees = ["fine", ...SPOT_FEES].map((name) => [name, real(spot.get(name) ?? 0)]);
    must(fees.every(([, x]) => Number.isFinite(x) && x >= 0), "spot");
    const tolerance = real(spot.get("tolerance") ?? 0), rounds = integer(spot.get("rounds") ?? 1n);
    must(tolerance >= 0 && tolerance < 1 && rounds >= 1n && rounds <= 1000n, "spot");
    const auditor = await parseKey(string(spot.get("auditor")), 1);
    must(auditor && this.signed !== "none", "spot");
    this.spot = { ...Object.fromEntries(fees), tolerance, rounds: Number(rounds), key: auditor.key };
  }

  // The block of the price that a round belongs to.
  block(t) {
    if (this.last && t > this.last) throw new Wrong("terms", `round ${t} is after the last round of the terms, ${this.last}`);
    return this.starts.filter((start) => start <= t).length - 1;
  }

  // C of a round, one number or one per listed member.
  price(t) {
    const factor = this.discount ? (1 - this.discount) ** Number(this.last - t) : 1;
    if (factor === Infinity) throw new RangeError("a price is too large");
    return this.prices[this.block(t)].map((value) => value * factor);
  }
}

// ---- what the rules measure: statistics, Gram matrix, who is ok → a number each, and how many are needed

const count = (ok) => ok.filter(Boolean).length;

// ‖m_i − m̄‖² = G_ii − (2/n) Σ_j G_ij + (1/n²) Σ_jk G_jk of the ok updates, times a factor.
function distances(gram, ok, factor) {
  const n = count(ok);
  checkGram(gram, n);
  const sums = gram.map(fsum), total = fsum(sums);
  const found = gram.map((row, i) => factor * Math.max(0, row[i] - (2 * sums[i]) / n + total / n ** 2));
  let k = 0;
  return ok.map((there) => (there ? found[k++] : 0));
}

const recorded = (statistics) => [statistics.map((value) => value ?? 0), 2];
const nothing = (_statistics, _gram, ok) => [ok.map(() => 0), 2];

function distanceToOthers(_statistics, gram, ok) {
  const n = Math.max(count(ok), 2);
  return [distances(gram, ok, (n / (n - 1)) ** 2), 2];
}

function grovesLedyard(_statistics, gram, ok) {
  const n = Math.max(count(ok), 3);
  return [distances(gram, ok, (n - 1) / (n - 2)), 3];
}

const RULES = {
  "squared-norm": ["norms", recorded],
  "spot-audit": ["misreport", recorded],
  none: ["norms", nothing],
  "squared-distance": ["gram", distanceToOthers],
  "groves-ledyard": ["gram", grovesLedyard],
};

// A Gram matrix must be square and symmetric, with a diagonal ≥ 0.
export function checkGram(gram, n) {
  if (gram.length !== n || gram.some((row) => row.length !== n)) throw new Wrong("form", `the Gram matrix must have ${n} rows and columns`);
  const size = gram.length ? Math.max(...gram.map((row, i) => row[i])) : 0;
  gram.forEach((row, i) => row.forEach((value, j) => {
    if (Math.abs(value - gram[j][i]) > 1e-6 * Math.max(size, 0) || (i === j && value < 0)) throw new Wrong("form", `Gram entry ${value} cannot be an inner product`);
  }));
}

// ---- reading values of the terms

function must(condition, name) {
  if (!condition) throw new Wrong("terms", `${name} of the terms is not allowed`);
}

function fields(table, known, needed = []) {
  must(table instanceof Map && needed.every((key) => table.has(key)) && [...table.keys()].every((key) => known.includes(key)), "a field");
}

const typed = (test) => (x) => (must(test(x), String(x).slice(0, 40)), x);
const string = typed((x) => typeof x === "string");
const integer = typed((x) => typeof x === "bigint");
const lists = typed(Array.isArray);
// Larger whole numbers have no floating-point value.
const isReal = (x) => typeof x === "number" || (typeof x === "bigint" && -(2n ** 1023n) <= x && x <= 2n ** 1023n);
const real = (x) => (must(isReal(x), "a number"), Number(x));
const strings = (x) => lists(x).map(string);
const numbers = (x) => lists(x).map(real);
// A number, or a list of numbers and lists of numbers.
const rows = (x) => (Array.isArray(x) ? x : [x]).map((row) => numbers(Array.isArray(row) ? row : [row]));

function checkRows(table, blocks, low) {
  must(table.length === blocks && table.every((row) => row.length && row.length === table[0].length), "a row");
  must(table.flat().every((x) => Number.isFinite(x) && x >= low), "a number");
}

function checkBlocks(starts, last) {
  must(starts.length && starts[0] === 1n && starts.at(-1) <= last, "starts");
  must(starts.every((start, k) => k === 0 || starts[k - 1] < start), "starts");
}

function checkAudited(table) {
  const texts = ["protocol", "local_work", "audit", "digest", "versions"];
  const every = [...texts, "starts", "lowest", "highest", "message", "rounds", "weights", "members"];
  fields(table, every, every);
  must(texts.every((name) => typeof table.get(name) === "string"), "audited");
  must(["gradient", "model difference"].includes(table.get("message")), "audited.message");
  must(WEIGHTS.includes(table.get("weights")), "audited.weights");
  const last = integer(table.get("rounds"));
  must(last >= 1n && integer(table.get("members")) >= 2n, "audited");
  const starts = lists(table.get("starts")).map(integer), lowest = numbers(table.get("lowest")), highest = numbers(table.get("highest"));
  checkBlocks(starts, last);
  must(starts.length === lowest.length && starts.length === highest.length, "audited");
  must(lowest.every((low, k) => low >= 0 && low <= highest[k] && highest[k] < Infinity), "audited");
  must(HEX.test(table.get("digest")), "audited.digest");
}

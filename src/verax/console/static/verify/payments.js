// Payments and amounts, computed again: p_i = C_i n_i − mean_{j≠i} C_j n_j − κ_i.
// Mirrors verax/verifier/payments.py.

import { Wrong } from "./forms.js";
import { divide, fraction, fsum, isClose, powerOfTen, sum } from "./numbers.js";
import { checkGram } from "./terms.js";

const NANO = 10n ** 9n; // nano-units in a minor unit

// Price, rule, statuses, statistics, Gram matrix and weights fit the terms.
export function checkInputs(terms, r, accounts) {
  const price = terms.price(r.round);
  if (r.rule !== terms.rule || price.length !== r.price.length || !price.every((a, k) => isClose(a, r.price[k], 1e-12))) {
    throw new Wrong("terms", `rule ${r.rule} at ${r.price}, the terms say ${price}`);
  }
  if ((terms.reads !== null && terms.reads !== r.reads) || (r.reads === "gram") !== (r.statistics === null)) throw new Wrong("form", `rule ${terms.rule} cannot read ${r.reads}`);
  if ((r.reads === "gram") !== (r.gram !== null)) throw new Wrong("form", `rule ${terms.rule} needs other inputs`);
  const known = new Set(r.accounts);
  for (const table of [r.statuses, r.weights, r.reasons, r.examples]) {
    if ([...table.keys()].some((number) => !known.has(number))) throw new Wrong("form", "a status, weight or reason belongs to nobody in the round");
  }
  if ([...r.weights.keys(), ...r.examples.keys()].some((number) => r.statuses.has(number))) throw new Wrong("form", "a member that is not ok has a weight or an example count");
  const ok = r.accounts.filter((number) => !r.statuses.has(number));
  if (r.statistics !== null) {
    const given = r.accounts.filter((_, k) => r.statistics[k] !== null && r.statistics[k] !== undefined);
    if (r.statistics.length !== r.accounts.length || given.length !== ok.length || given.some((number, k) => number !== ok[k])) {
      throw new Wrong("form", "not exactly the members that are ok have a statistic");
    }
  } else {
    checkGram(r.gram, ok.length);
  }
  if (r.examples.size) checkExamples(terms, r, ok);
  const order = listedOrder(terms, r, accounts);
  if (ok.length && (r.weights.size || terms.weights === "fixed")) checkWeights(terms, r, ok, order);
}

// Where example counts are booked, weights follow from them: N c_i / Σ c_j.
function checkExamples(terms, r, ok) {
  const counts = [...r.examples.values()], total = counts.reduce((a, b) => a + b);
  if (terms.weights !== "reported" || counts.length !== ok.length || !ok.every((number) => r.examples.has(number))) {
    throw new Wrong("weight", "not exactly the members that are ok have a count");
  }
  if (counts.some((count) => count < terms.counts.fewest || count > terms.counts.most)) throw new Wrong("weight", "an example count is outside the limits of the terms");
  const follows = (number) => isClose(r.weights.get(number) ?? 1, Number(r.examples.get(number) * BigInt(ok.length)) / Number(total), 1e-9);
  if (!ok.every(follows)) throw new Wrong("weight", "weights do not follow from the example counts");
}

// Weights must be those that the terms fix; reported weights must have the mean 1.
function checkWeights(terms, r, ok, order) {
  const booked = ok.map((number) => r.weights.get(number) ?? 1);
  let right;
  if (terms.weights === "reported") {
    right = Math.abs(fsum(booked) / ok.length - 1) <= 1e-9 * ok.length;
  } else {
    let expected = ok.map(() => 1);
    if (terms.weights === "fixed") {
      const table = new Map(byParticipant(terms.weightValues, order).map((value, k) => [r.accounts[k], value]));
      const own = ok.map((number) => table.get(number)), total = fsum(own);
      expected = own.map((value) => (value * ok.length) / total);
    }
    right = booked.every((a, k) => Math.abs(a - expected[k]) <= 1e-9 * Math.max(1, expected[k]));
  }
  if (!right) throw new Wrong("weight", "weights are not those of the terms");
}

// Payments follow from inputs and terms; of an unknown rule, what is true of every rule.
export function checkCharge(terms, r, accounts) {
  const booked = r.payments, sizes = booked.map(Math.abs), scale = Number(terms.scale);
  if (booked.length !== r.accounts.length) throw new Wrong("form", "there must be as many payments as accounts");
  const total = sum(booked), largest = Math.max(0, ...sizes);
  if (largest * powerOfTen(scale) > 2 ** 64 || !(Math.abs(total) <= Math.max(0.5 * powerOfTen(-scale), 1e-9 * sum(sizes)))) {
    throw new Wrong("payment", `payments sum to ${total} or are too large`);
  }
  for (const [number, status] of r.statuses) {
    if (!r.accounts.includes(number)) throw new TypeError(`${number} is not in the round`);
    if (booked[r.accounts.indexOf(number)] && terms.policy[status] === "excuse") throw new Wrong("payment", "a member that is excused pays");
  }
  if (terms.measure === null || !booked.length) return;
  const [payments, rounding] = computePayments(terms, r, listedOrder(terms, r, accounts));
  const difference = Math.max(...payments.map((p, k) => Math.abs(p - booked[k])));
  if (!(difference <= 1e-9 * Math.max(...payments.map(Math.abs)) + rounding)) {
    throw new Wrong("payment", `payments differ by ${difference.toPrecision(6)} from inputs and terms`);
  }
}

// The positions of the members that the terms list, who must be exactly the participants.
export function listedOrder(terms, r, accounts) {
  if (!terms.members.length) return r.accounts.map((_, k) => k);
  const members = r.accounts.map((number) => accounts.get(number));
  const order = terms.members.flatMap((listed) => {
    const places = (key) => members.flatMap((each, k) => (each[key] === listed ? [k] : []));
    return places("member").length ? places("member") : places("label");
  });
  if (order.length !== members.length || new Set(order).size !== order.length || order.length !== terms.members.length) {
    throw new Wrong("member", "participants are not exactly the members that the terms list");
  }
  return order;
}

// Minor units that sum to zero, and the remainders to carry, in nano-units.
export function toUnits(payments, scale, carried) {
  const units = carried.map(() => 0n), after = [...carried];
  const paying = payments.flatMap((payment, k) => (payment ? [k] : []));
  if (!paying.length) return [units, after];
  const ratios = paying.map((k) => fraction(payments[k]));
  const shift = ratios.reduce((most, [, each]) => (each > most ? each : most), 0n);
  const power = 10n ** scale * NANO;
  const nano = apportion(ratios.map(([above, each]) => (above * power) << (shift - each)), 1n << shift);
  const totals = paying.map((k, i) => after[k] + nano[i]);
  const m = BigInt(paying.length), shared = paying.reduce((all, k) => all + after[k], 0n);
  const whole = apportion(totals.map((total) => m * total - shared), m * NANO);
  paying.forEach((k, i) => { [units[k], after[k]] = [whole[i], totals[i] - NANO * whole[i]]; });
  return [units, after];
}

// Parts as whole multiples of a unit that sum to zero, by the largest-remainder method.
function apportion(parts, unit) {
  const divided = parts.map((part) => divide(part, unit)), wholes = divided.map(([quotient]) => quotient);
  const [each, rest] = divide(-wholes.reduce((a, b) => a + b, 0n), BigInt(parts.length));
  const larger = (i, j) => (divided[i][1] < divided[j][1] ? 1 : divided[i][1] > divided[j][1] ? -1 : i - j);
  for (const k of parts.map((_, k) => k).sort(larger).slice(0, Number(rest))) wholes[k] += 1n;
  return wholes.map((whole) => whole + each);
}

// Numbers in the order of the terms' members, put into that of the participants.
function byParticipant(listed, order) {
  if (listed.length === 1) return order.map(() => listed[0]);
  const result = order.map(() => 0);
  listed.forEach((value, k) => { result[order[k]] = value; });
  return result;
}

// The payments of a round, and by how much rounding may change them.
function computePayments(terms, r, order) {
  const statuses = r.accounts.map((number) => r.statuses.get(number) ?? "ok"), ok = statuses.map((status) => status === "ok");
  const [measured, fewest] = terms.measure(r.statistics, r.gram, ok);
  if (measured.length !== ok.length) throw new TypeError("there must be a statistic per participant");
  let measures = measured.map((m, k) => (ok[k] ? m : 0)), present = ok;
  const prices = byParticipant(terms.price(r.round), order);
  const actions = statuses.map((status) => (status === "ok" ? null : terms.policy[status]));
  if (ok.includes(true) && actions.includes("largest")) {
    const most = Math.max(...measures);
    measures = measures.map((m, k) => (actions[k] === "largest" ? most : m));
    present = actions.map((action) => action === null || action === "largest");
  }
  const there = present.filter(Boolean).length, counted = ok.filter(Boolean).length;
  let result = ok.map(() => 0);
  if (there >= Math.max(fewest, 2)) {
    const levies = measures.map((m, k) => prices[k] * m), total = fsum(levies); // those of the absent are zero
    result = levies.map((levy, k) => (present[k] ? levy - (total - levy) / (there - 1) : 0));
    if (terms.allowances.length) result = lessAllowances(terms, result, r.round, present, order);
  }
  const fined = actions.filter((action) => action === "flat-fee").length;
  if (fined && counted) {
    const fee = terms.policy.fee, share = (fee * fined) / counted;
    result = result.map((p, k) => p + (actions[k] === "flat-fee" ? fee : actions[k] === null ? -share : 0));
  }
  const inputs = [...(r.statistics ?? []).filter(Boolean), ...(r.gram ?? []).map((row, k) => 40 * row[k])];
  return [result, 1e-12 * Math.max(0, ...prices) * Math.max(0, ...inputs, ...measures.map(Math.abs))];
}

function lessAllowances(terms, payments, t, present, order) {
  const kappa = byParticipant(terms.allowances[Math.min(terms.block(t), terms.allowances.length - 1)], order);
  const mean = fsum(kappa.filter((_, k) => present[k])) / present.filter(Boolean).length;
  return payments.map((payment, k) => (present[k] ? payment - (kappa[k] - mean) : payment));
}

// "Check the book yourself": downloads the export, or reads a file, and verifies it in this browser.

import { $, element } from "./charts.js";
import { verify } from "./verify/verify.js";

const units = (text, scale) => {
  const digits = text.replace("-", "").padStart(scale + 1, "0"), sign = text.startsWith("-") ? "−" : "";
  return sign + (scale ? `${digits.slice(0, -scale)}.${digits.slice(-scale)}` : digits);
};

export function listenToChecker(card) {
  $("check-export")?.addEventListener("click", () => check(card, download(card.dataset.export)));
  const input = $("check-file"), checkFile = () => {
    const [file] = input.files;
    if (file) check(card, file.arrayBuffer());
  };
  input.addEventListener("change", checkFile);
  checkFile(); // a file that was chosen before this script had loaded
  card.dataset.ready = "yes";
}

async function download(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`the export cannot be downloaded (${answer.status})`);
  return answer.arrayBuffer();
}

async function check(card, source) {
  const button = $("check-export"), progress = $("check-progress");
  if (button) button.disabled = true;
  $("check-result").replaceChildren();
  progress.textContent = "Reading …";
  try {
    if (!globalThis.crypto?.subtle) throw new Error("this browser computes hashes only on https:// and localhost");
    const bytes = new Uint8Array(await source);
    const options = { checkpoints: await kept(), mine: await own(card), progress: (lines, share) => breathe(progress, lines, share) };
    show(card, await verify(bytes, options));
    progress.textContent = "";
  } catch (error) {
    progress.textContent = `Could not check: ${error.message}.`;
  }
  if (button) button.disabled = false;
}

async function kept() {
  const [file] = $("check-note").files;
  return file ? [{ name: file.name, text: await file.text() }] : [];
}

async function own(card) {
  const [file] = $("check-mine").files;
  return file && card.dataset.own ? { text: await file.text(), member: card.dataset.own } : null;
}

// Say how far it is, and let the page draw it.
async function breathe(progress, lines, share) {
  progress.textContent = `${lines} records checked, ${Math.round(100 * share)} % …`;
  await new Promise((resume) => setTimeout(resume));
}

function show(card, result) {
  const box = $("check-result"), scale = Number(card.dataset.scale), own = card.dataset.own;
  const words = result.ok ? "Nothing wrong found." : `${result.wrong} finding${result.wrong === 1 ? "" : "s"}: this book is not right.`;
  element(box, "p", { class: `verdict ${result.ok ? "good" : "loud"}`, id: "check-verdict" }, words);
  element(box, "p", { class: "soft" }, `${result.records} records, ${result.rounds} rounds and ${result.entries} entries of ${result.federation} were checked here.`);
  list(box, "Findings", result.findings.map((each) => `${each.kind === "unchecked" ? "Not checked" : "Wrong"} (${each.kind}): ${each.message}`));
  list(box, "Proven by signatures", result.proven);
  list(box, "Decisions that no rule can check, only you", result.decisions.map((each) => each.message));
  const pairs = element(box, "dl", { class: "pairs" });
  if (own in result.balances) pair(pairs, "your balance, recomputed", `${units(result.balances[own], scale)} ${card.dataset.money}`);
  pair(pairs, "last hash", result.hash);
  pair(pairs, "root", result.root);
  if (result.checkpoints) pair(pairs, "checkpoints compared", String(result.checkpoints));
}

function pair(pairs, term, value) {
  element(pairs, "dt", {}, term);
  element(pairs, "dd", { class: "key" }, value);
}

function list(box, title, lines) {
  if (!lines.length) return;
  element(box, "h3", {}, title);
  const found = element(box, "ul", { class: "plain" });
  for (const line of lines.slice(0, 50)) element(found, "li", {}, line);
  if (lines.length > 50) element(found, "li", {}, `and ${lines.length - 50} more`);
}

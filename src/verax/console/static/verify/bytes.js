// Bytes: hashes, hexadecimal numbers and base64. SHA-256 is the browser's own.

export async function sha256(bytes) {
  const raw = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return { raw, hex: hexOf(raw) };
}

export const encode = (text) => new TextEncoder().encode(text);
export const hexOf = (raw) => Array.from(raw, (byte) => byte.toString(16).padStart(2, "0")).join("");
export const base64Of = (raw) => btoa(Array.from(raw, (byte) => String.fromCharCode(byte)).join(""));
export const same = (a, b) => a.length === b.length && a.every((byte, k) => byte === b[k]);

export function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

// Base64 with all of its padding; `atob` alone would skip spaces and forgive missing padding.
export function fromBase64(text) {
  if (!/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(text)) throw new SyntaxError("no base64");
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

// Base64 in exactly one form: the unused bits of its last character are zero.
export function fromExactBase64(text) {
  const raw = fromBase64(text);
  if (base64Of(raw) !== text) throw new SyntaxError("no base64");
  return raw;
}

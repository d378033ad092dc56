// TOML, as far as terms use it: tables, dotted keys, texts, numbers, booleans, lists. Whole numbers
// become BigInt. Dates are refused: no field of the terms is one.

const BARE = /[A-Za-z0-9_-]+/y;
const NUMBER = /[+-]?(?:0x[0-9A-Fa-f_]+|0o[0-7_]+|0b[01_]+|(?:inf|nan)(?![\w])|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d[\d_]*)?)/y;
const WHOLE = /^[+-]?(?:0|[1-9](?:_?\d)*)$|^0(?:x[0-9A-Fa-f](?:_?[0-9A-Fa-f])*|o[0-7](?:_?[0-7])*|b[01](?:_?[01])*)$/;
const REAL = /^[+-]?(?:(?:0|[1-9](?:_?\d)*)(?:\.\d(?:_?\d)*)?(?:[eE][+-]?\d(?:_?\d)*)?|inf|nan)$/;
const ESCAPES = { b: "\b", t: "\t", n: "\n", f: "\f", r: "\r", '"': '"', "\\": "\\" };
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/;

export function parseToml(text) {
  if (CONTROL.test(text)) throw new SyntaxError("a control character");
  return new Reader(text.replaceAll("\r\n", "\n")).document();
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
    this.closed = new Set(); // tables that are complete: inline tables, and those with a heading
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at = pattern.lastIndex;
    return found;
  }

  take(word) {
    if (!this.text.startsWith(word, this.at)) return false;
    this.at += word.length;
    return true;
  }

  expect(word) {
    if (!this.take(word)) throw new SyntaxError(`expected ${word} at ${this.at}`);
  }

  space() {
    this.match(/[ \t]*/y);
  }

  // Spaces, comments and line breaks.
  blank() {
    this.match(/(?:[ \t\n]|#[^\n]*)*/y);
  }

  endOfLine() {
    this.match(/[ \t]*(?:#[^\n]*)?/y);
    if (this.at < this.text.length) this.expect("\n");
  }

  document() {
    const root = new Map();
    let table = root;
    for (this.blank(); this.at < this.text.length; this.blank()) {
      if (this.take("[[")) throw new SyntaxError("lists of tables are not used in terms");
      if (this.take("[")) {
        table = this.heading(root);
      } else {
        this.pair(table);
      }
      this.endOfLine();
    }
    return root;
  }

  heading(root) {
    this.space();
    const table = this.descend(root, this.key());
    this.space();
    this.expect("]");
    if (this.closed.has(table)) throw new SyntaxError("a table stands twice");
    this.closed.add(table);
    return table;
  }

  descend(table, keys) {
    for (const key of keys) {
      if (!table.has(key)) table.set(key, new Map());
      table = table.get(key);
      if (!(table instanceof Map)) throw new SyntaxError(`${key} is no table`);
    }
    return table;
  }

  pair(table) {
    const keys = this.key(), last = keys.pop();
    const inner = this.descend(table, keys);
    this.space();
    this.expect("=");
    this.space();
    if (inner.has(last)) throw new SyntaxError(`${last} stands twice`);
    inner.set(last, this.value());
  }

  key() {
    const keys = [];
    do {
      this.space();
      const quote = this.text[this.at];
      const name = quote === '"' || quote === "'" ? this.string() : this.match(BARE)?.[0];
      if (name === undefined) throw new SyntaxError(`no key at ${this.at}`);
      keys.push(name);
      this.space();
    } while (this.take("."));
    return keys;
  }

  value() {
    const first = this.text[this.at];
    if (first === '"' || first === "'") return this.string();
    if (this.take("[")) return this.list();
    if (this.take("{")) return this.inline();
    if (this.match(/true(?!\w)/y)) return true;
    if (this.match(/false(?!\w)/y)) return false;
    const found = this.match(NUMBER)?.[0];
    if (!found || /[\w:.-]/.test(this.text[this.at] ?? "")) throw new SyntaxError(`no value at ${this.at}`);
    if (WHOLE.test(found)) return BigInt(found.replaceAll("_", "").replace(/^\+/, ""));
    if (!REAL.test(found)) throw new SyntaxError(`${found} is no number`);
    return Number(found.replaceAll("_", "").replace(/inf$/, "Infinity").replace(/[+-]?nan$/, "NaN"));
  }

  list() {
    const items = [];
    for (this.blank(); !this.take("]"); this.blank()) {
      items.push(this.value());
      this.blank();
      if (this.take(",")) continue;
      this.blank();
      this.expect("]");
      break;
    }
    return items;
  }

  inline() {
    const table = new Map();
    this.space();
    if (!this.take("}")) {
      do this.pair(table); while ((this.space(), this.take(",")));
      this.expect("}");
    }
    this.closed.add(table);
    return table;
  }

  string() {
    for (const [quote, literal, long] of [['"""', false, true], ["'''", true, true], ['"', false, false], ["'", true, false]]) {
      if (this.take(quote)) return this.text_(quote, literal, long);
    }
    throw new SyntaxError(`no text at ${this.at}`);
  }

  text_(quote, literal, long) {
    let result = "";
    if (long) this.take("\n");
    while (!this.take(quote)) {
      const c = this.text[this.at];
      if (c === undefined || (c === "\n" && !long)) throw new SyntaxError("a text has no end");
      this.at += 1;
      result += c === "\\" && !literal ? this.escape(long) : c;
    }
    for (let k = 0; long && k < 2 && this.take(quote[0]); k++) result += quote[0]; // quotes before the end
    return result;
  }

  escape(long) {
    if (long && this.match(/[ \t]*\n[ \t\n]*/y)) return "";
    const code = this.match(/u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})/y);
    if (code) {
      const point = parseInt(code[1] ?? code[2], 16);
      if (point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) throw new SyntaxError("no character");
      return String.fromCodePoint(point);
    }
    const c = ESCAPES[this.text[this.at]];
    if (c === undefined) throw new SyntaxError("an unknown escape");
    this.at += 1;
    return c;
  }
}

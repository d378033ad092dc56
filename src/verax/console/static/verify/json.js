// JSON, read strictly: whole numbers become BigInt and others Number, so that 3 and 3.0 differ; a key
// that stands twice is refused. Objects become Map.

const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?/y;
const STRING = /"((?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"/y;
const SPACE = /[ \t\n\r]*/y;
const WORDS = [["true", true], ["false", false], ["null", null]];

export function parseJson(text) {
  const reader = new Reader(text);
  const value = reader.value();
  reader.space();
  if (reader.at !== text.length) throw new SyntaxError("there is more after the end");
  return value;
}

class Reader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found) this.at = pattern.lastIndex;
    return found;
  }

  space() {
    this.match(SPACE);
  }

  take(character) {
    this.space();
    if (this.text[this.at] !== character) return false;
    this.at += 1;
    return true;
  }

  expect(character) {
    if (!this.take(character)) throw new SyntaxError(`expected ${character} at ${this.at}`);
  }

  value() {
    if (this.take("{")) return this.object();
    if (this.take("[")) return this.list();
    if (this.text[this.at] === '"') return this.string();
    for (const [word, value] of WORDS) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        return value;
      }
    }
    const number = this.match(NUMBER);
    if (!number) throw new SyntaxError(`no value at ${this.at}`);
    if (number[1] || number[2]) return Number(number[0]);
    if (number[0].replace("-", "").length > 4300) throw new SyntaxError("a number of too many digits");
    return BigInt(number[0]);
  }

  string() {
    const found = this.match(STRING);
    if (!found) throw new SyntaxError(`no text at ${this.at}`);
    return JSON.parse(found[0]);
  }

  list() {
    const items = [];
    if (this.take("]")) return items;
    do items.push(this.value()); while (this.take(","));
    this.expect("]");
    return items;
  }

  object() {
    const table = new Map();
    if (this.take("}")) return table;
    do {
      this.space();
      const key = this.string();
      this.expect(":");
      if (table.has(key)) throw new SyntaxError("a key stands twice");
      table.set(key, this.value());
    } while (this.take(","));
    this.expect("}");
    return table;
  }
}

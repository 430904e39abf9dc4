"use strict";
// Text to token ids and back, as sentencepiece does it (Kudo and Richardson 2018).

const SPACE = "\u2581";
const [NORMAL, USER_DEFINED, UNUSED, BYTE] = [1, 4, 5, 6]; // types of pieces
const [PAD_ID, UNKNOWN_ID, BEGIN_ID, END_ID] = [0, 1, 2, 3];
const REPLACEMENT = "\ufffd";

/** A text in NFC and in one line, without what is never seen. rule: regular expressions by name. */
function canonicalize(text, rule) {
  const expression = (name) => new RegExp(rule[name], "gu");
  const seen = text.replace(expression("neverSeen"), "").replace(expression("blanks"), " ");
  const canonical = seen.trim().normalize("NFC");
  return canonical.replace(expression("invisible"), "") ? canonical : "";
}

/** The rules of a normalisation, of a double-array trie and the texts that its values point to. */
class CharacterMap {
  constructor(base64) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const size = bytes.length ? new DataView(bytes.buffer).getUint32(0, true) : 0;
    this.units = new Uint32Array(bytes.buffer.slice(4, 4 + size));
    this.texts = bytes.subarray(4 + size);
  }

  /** The longest rule that the bytes from `start` on begin with: [bytes, its text], or null. */
  longest(bytes, start) {
    if (!this.units.length) return null;
    const offset = (unit) => (unit >>> 10) << ((unit & 0x200) >>> 6);
    let place = offset(this.units[0]);
    let found = null;
    for (let i = start; i < bytes.length; i++) {
      place ^= bytes[i];
      const unit = this.units[place];
      if ((unit & 0x800000ff) !== bytes[i]) break;
      place ^= offset(unit);
      if (unit & 0x100) found = [i + 1 - start, this.units[place] & 0x7fffffff];
    }
    if (!found) return null;
    const end = this.texts.indexOf(0, found[1]);
    return [found[0], new TextDecoder().decode(this.texts.subarray(found[1], end))];
  }
}

class Tokenizer {
  /** spec: see `make_tokenizer` in `transformer/bridges/browser.py`. */
  constructor(spec, rule) {
    Object.assign(this, spec, { rule, map: new CharacterMap(spec.characterMap) });
    const numbers = spec.pieces.map((_, id) => id);
    const ofType = (...types) => numbers.filter((id) => types.includes(Number(spec.types[id])));
    this.ids = new Map(ofType(NORMAL, USER_DEFINED).map((id) => [spec.pieces[id], id]));
    this.unused = new Map(ofType(UNUSED).map((id) => [spec.pieces[id], id]));
    this.isSymbol = new Set(ofType(USER_DEFINED));
    this.bytes = ofType(BYTE);
    this.longest = Math.max(1, ...ofType(NORMAL, USER_DEFINED).map((id) => spec.pieces[id].length));
    this.symbols = [...this.isSymbol].map((id) => spec.pieces[id]);
    this.symbols.sort((a, b) => b.length - a.length);
  }

  encode(text) {
    const normal = this.normalize(text);
    const split = { unigram: viterbi, bpe: mergePairs, word: splitWords, char: splitCharacters };
    const ids = [];
    let run = ""; // of unknown characters, which may be an unused piece
    for (const piece of split[this.kind](normal, this)) {
      const id = this.ids.get(piece) ?? UNKNOWN_ID;
      const starts = !run;
      run = id === UNKNOWN_ID ? run + piece : "";
      if (id !== UNKNOWN_ID) ids.push(id);
      else if (this.bytes.length) {
        ids.push(...Array.from(new TextEncoder().encode(piece), (byte) => this.bytes[byte]));
      } else ids.splice(starts ? ids.length : -1, 1, this.unused.get(run) ?? UNKNOWN_ID);
    }
    return ids;
  }

  /** The text that is segmented, in which SPACE stands for a blank. */
  normalize(text) {
    const given = this.trims ? canonicalize(text, this.rule) : text;
    const bytes = new TextEncoder().encode(given);
    const symbols = this.symbols.map((symbol) => new TextEncoder().encode(symbol));
    const parts = [];
    for (let i = 0; i < bytes.length;) {
      const symbol = symbols.find((each) => each.every((byte, k) => byte === bytes[i + k]));
      const [length, part] = (symbol && [symbol.length, new TextDecoder().decode(symbol)])
        ?? this.map.longest(bytes, i) ?? characterAt(bytes, i);
      parts.push(part);
      i += length;
    }
    let normal = "";
    let afterBlank = this.trims;
    for (const part of parts) {
      const rest = afterBlank ? part.replace(/^ +/, "") : part;
      normal += rest;
      if (rest) afterBlank = this.trims && rest.endsWith(" ");
    }
    if (this.trims) normal = normal.replace(/[ \u2581]+$/, "");
    if (!normal) return "";
    return ((this.prefixes ? " " : "") + normal).replaceAll(" ", SPACE);
  }

  /** The text of ids without begin and end. */
  decode(ids) {
    let text = "";
    let bytes = [];
    const spell = () => {
      for (let i = 0; i < bytes.length;) {
        const [length, character] = characterAt(bytes, i);
        text += character;
        i += length;
      }
      bytes = [];
    };
    for (const id of ids) {
      const byte = this.bytes.indexOf(id);
      if (byte >= 0) bytes.push(byte);
      else {
        spell();
        if (id === UNKNOWN_ID) text += " \u2047 ";
        else if (id !== PAD_ID && id !== BEGIN_ID) text += this.pieces[id].replaceAll(SPACE, " ");
      }
    }
    spell();
    return canonicalize(text, this.rule);
  }
}

/** The character of UTF-8 that starts at a byte: [bytes, text]; REPLACEMENT for what is none. */
function characterAt(bytes, start) {
  const first = bytes[start];
  const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  try {
    const part = Uint8Array.from(bytes.slice(start, start + length));
    const character = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(part);
    return [length, character];
  } catch {
    return [1, REPLACEMENT];
  }
}

// -- segmentations: the pieces of a normalised text, in which unknown characters stand alone

/** The most probable segmentation (Kudo 2018, section 3.2), with sums in float32. */
function viterbi(text, tokenizer) {
  const unknown = Math.fround(tokenizer.lowest - 10);
  const best = [{ score: 0, start: 0 }];
  for (let start = 0; start < text.length;) {
    const width = text.codePointAt(start) > 0xffff ? 2 : 1;
    const before = best[start].score;
    const reach = (end, score) => {
      const total = Math.fround(before + score);
      if (!best[end] || total > best[end].score) best[end] = { score: total, start };
    };
    let alone = false;
    const furthest = Math.min(text.length, start + tokenizer.longest);
    for (let end = start + 1; end <= furthest; end++) {
      const piece = text.slice(start, end);
      const id = tokenizer.ids.get(piece);
      if (id === undefined) continue;
      const length = tokenizer.isSymbol.has(id) && new TextEncoder().encode(piece).length;
      const asSymbol = Math.fround(length * tokenizer.highest - 0.1);
      reach(end, length ? asSymbol : tokenizer.scores[id]);
      alone ||= end === start + width;
    }
    if (!alone) reach(start + width, unknown);
    start += width;
  }
  const pieces = [];
  for (let end = text.length; end > 0; end = best[end].start) {
    pieces.push(text.slice(best[end].start, end));
  }
  return pieces.reverse();
}

/** Merges neighbours, the best pair first and of equal ones the first (Sennrich et al. 2016). */
function mergePairs(text, tokenizer) {
  const pieces = splitCharacters(text, tokenizer);
  const isFixed = (piece) => tokenizer.isSymbol.has(tokenizer.ids.get(piece));
  const score = (i) => {
    if (i + 1 >= pieces.length || isFixed(pieces[i]) || isFixed(pieces[i + 1])) return null;
    return tokenizer.scores[tokenizer.ids.get(pieces[i] + pieces[i + 1])] ?? null;
  };
  const scores = pieces.map((_, i) => score(i));
  for (;;) {
    let best = -1;
    scores.forEach((each, i) => {
      if (each !== null && (best < 0 || each > scores[best])) best = i;
    });
    if (best < 0) return pieces;
    pieces.splice(best, 2, pieces[best] + pieces[best + 1]);
    scores.splice(best, 1);
    for (const i of [best - 1, best]) if (i >= 0 && i < pieces.length) scores[i] = score(i);
  }
}

function splitWords(text) {
  return text.match(/\u2581[^\u2581]*|[^\u2581]+/g) ?? [];
}

/** Characters, and the symbols that are always one token. */
function splitCharacters(text, { symbols }) {
  const pieces = [];
  for (let i = 0; i < text.length;) {
    const piece = symbols.find((symbol) => text.startsWith(symbol, i))
      ?? String.fromCodePoint(text.codePointAt(i));
    pieces.push(piece);
    i += piece.length;
  }
  return pieces;
}

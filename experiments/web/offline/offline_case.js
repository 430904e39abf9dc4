"use strict";
// The words of a line, its case and its placeholders, as `words.py` and
// `placeholders.py` in `transformer/data/` have them.

const [MIN_LETTERS, MIN_WORDS] = [4, 4];
const [DOTTED, DUTCH, ARMENIAN] = [["i", "İ"], ["ij", "IJ"], ["և", "Եվ"]];
const CAPITALS = new Map(Object.entries({
  tr: DOTTED, tur: DOTTED, az: DOTTED, aze: DOTTED, nl: DUTCH, nld: DUTCH, hy: ARMENIAN, hye: ARMENIAN,
}));
const GREEK = new Set(["el", "ell"]);
const HIATUS = /(?<=[αεηιουωΑΕΗΙΟΥΩ]\u0301)[ιυΙΥ](?!\u0308)/gu;
const ACCENT =
  /((?<![\p{L}\p{M}])[ηΗ]\u0301(?![\p{L}\p{M}]))|[\u0300\u0301\u0313\u0314\u0342]/gu;
const TITLES = { "Ǆ": "ǅ", "Ǉ": "ǈ", "Ǌ": "ǋ", "Ǳ": "ǲ" }; // which have a case of their own
const PARTS = /[\p{Alphabetic}\p{M}]+/gu;
const WORD_START = /(?<![\p{Alphabetic}\p{M}\p{Nd}_'’·])(?:ij|[\p{Alphabetic}\p{M}])/gu;

const someLetter = (text, fits) => Array.from(text).some(fits);
const hasCapital = (text) => someLetter(text, (c) => c.toLowerCase() !== c);
const hasSmall = (text) => someLetter(text, (c) => {
  const capital = c.toUpperCase();
  return Array.from(capital).length === 1 && capital !== c;
});

function upper(text, language) {
  const [small, capital] = CAPITALS.get(language) ?? ["", ""];
  if (small) return text.replaceAll(small, capital).toUpperCase();
  if (!GREEK.has(language)) return text.toUpperCase();
  const marked = text.normalize("NFD").replace(HIATUS, "$&\u0308");
  return marked.replace(ACCENT, "$1").normalize("NFC").toUpperCase();
}

function lower(text, language) {
  const dotless = CAPITALS.get(language) === DOTTED ? text.replaceAll("I", "ı") : text;
  return dotless.replaceAll("İ", "i").toLowerCase();
}

function capitalize(text, language) {
  const [small, capital] = CAPITALS.get(language) ?? ["", ""];
  if (small && text.startsWith(small)) return capital + text.slice(small.length);
  const [first = ""] = text;
  if (/[\u10d0-\u10ff]/.test(first)) return text; // Georgian
  const [letter = "", ...marks] = first.normalize("NFD");
  const [start = "", ...rest] = letter.toUpperCase();
  const title = (TITLES[start] ?? start) + rest.join("").toLowerCase() + marks.join("");
  return title.normalize("NFC") + text.slice(first.length);
}

const titleCase = (text, language) => text.replace(WORD_START, (c) => capitalize(c, language));

const escaped = (text) => text.replace(/[$()*+.?[\\\]^{|}/]/g, "\\$&");

class Words {
  /** spec: see `make_words` in `transformer/bridges/browser.py`. symbols: always one token. */
  constructor({ forms, copied, languages, patterns, names }, symbols) {
    const parts = [...symbols.map(escaped), patterns.string, `(?<word>${patterns.word})`];
    this.pattern = new RegExp(parts.join("|"), "gu");
    this.start = new RegExp(patterns.start, "u");
    this.number = new RegExp(`^(?:${patterns.number})$`, "u");
    [this.readIn, this.writeIn] = languages;
    const byFrequency = [...forms].reverse(); // the most frequent one is last
    this.forms = new Map(byFrequency.map((form) => [this.inCapitals(form), form]));
    this.alphabet = new Set(lower(forms.join(""), this.readIn));
    this.hasCase = 2 * [...this.alphabet].filter(hasSmall).length > this.alphabet.size;
    this.symbols = new Set(symbols);
    this.copied = new Set(copied);
    this.names = symbols.includes(names[0]) ? names : [];
  }

  /** The words of a line and the other strings: text, start, isWord and isFirst of a sentence. */
  tokens(line) {
    let end = 0; // of the last word
    return Array.from(line.matchAll(this.pattern), ({ 0: text, index: start, groups }) => {
      const isWord = groups.word !== undefined;
      const before = end ? line.slice(end - 1, start) : `. ${line.slice(0, start)}`;
      const isFirst = this.start.test(before);
      if (isWord) end = start + text.length;
      return { text, start, isWord, isFirst, before };
    });
  }

  words(line) {
    return this.tokens(line).filter(({ isWord }) => isWord);
  }

  // -- case

  form(text) {
    return this.forms.get(this.inCapitals(text));
  }

  inCapitals(text) {
    return upper(lower(text.replaceAll("’", "'"), this.readIn), this.readIn);
  }

  small(text) {
    return lower(text, this.readIn).replace(PARTS, (part) => this.form(part) ?? part);
  }

  /** "capitals", "title", or "" for any other line. */
  caseOf(line) {
    const tokens = this.words(line);
    const cased = tokens.filter(({ text }) => hasCapital(text) || hasSmall(text));
    const capitals = cased.map(({ text }) => text).filter((text) => !hasSmall(text));
    if (capitals.length >= 2 * (tokens.length - capitals.length)) {
      const long = [...new Set(capitals)].filter((text) => Array.from(text).length > 1);
      const known = long.filter((text) => this.form(text));
      const usual = known.filter((text) => this.form(text) === text).length;
      const isUnknown = !known.length && capitals.length === tokens.length;
      const letters = isUnknown ? Array.from(capitals.join("")).length : 0;
      if (known.length - usual >= Math.max(1, usual) || letters >= MIN_LETTERS) return "capitals";
    }
    const isTitle = cased.every(({ text }) => hasCapital(Array.from(text)[0]));
    if (cased.length < MIN_WORDS || !isTitle) return "";
    const inside = cased.filter(({ isFirst }) => !isFirst);
    const forms = inside.map(({ text }) => this.form(text)).filter(Boolean);
    const names = forms.filter((form) => hasCapital(Array.from(form)[0])).length;
    return forms.length - names >= Math.max(1, names) || !this.forms.size ? "title" : "";
  }

  readCase(line) {
    const lineCase = this.caseOf(line);
    if (!lineCase) return line;
    return this.change(line, (token) => {
      const { text, isFirst } = token;
      const mixed = lineCase === "capitals" && hasSmall(text);
      const form = this.form(text) ?? (mixed ? text : this.small(text));
      const first = { ...token, text: capitalize(form, this.readIn) };
      return mixed || !isFirst || this.copied.has(this.kindOf(first)) ? form : first.text;
    });
  }

  writeCase(text, line) {
    const lineCase = this.caseOf(line);
    if (lineCase === "title") {
      return this.change(text, ({ text: word, before }) =>
        (/[\p{L}\p{Nd}_]$/u.test(before) ? word : titleCase(word, this.writeIn)));
    }
    if (!lineCase) return text;
    const mixed = this.words(line).map((token) => token.text).filter(hasSmall);
    const asTyped = new Map(mixed.map((word) => [word.toLowerCase(), word]));
    return this.change(text, ({ text: word }) =>
      asTyped.get(word.toLowerCase()) ?? upper(word, this.writeIn));
  }

  change(line, make) {
    let [changed, end] = ["", 0];
    for (const token of this.words(line)) {
      changed += line.slice(end, token.start) + make(token);
      end = token.start + token.text.length;
    }
    return changed + line.slice(end);
  }

  // -- strings that need no translation

  kindOf({ text, isWord, isFirst, before }) {
    if (!isWord) return /^[0-9]{2,3}$/.test(text) ? "short number" : "";
    const parts = text.match(PARTS);
    const hasNoCase = this.hasCase && !hasSmall(text) && !/[\p{L}\p{Nd}_]$/u.test(before);
    if (!hasCapital(text) && !hasNoCase) return "";
    if ([text, ...parts].some((part) => this.form(part))) return "";
    if (someLetter(lower(parts.join(""), this.readIn), (c) => !this.alphabet.has(c))) return "foreign";
    return (isFirst ? "first " : "") + (hasSmall(text) ? "title" : "capitals");
  }

  written(string) {
    if (this.copied.has("number") || !this.number.test(string)) return string;
    return string.replace(/[.,]/g, (mark) => (mark === "." ? "," : "."));
  }

  /** Whether a line has no words, and such lines are copied. */
  isCopied(line) {
    const startsWithSymbol = [...this.symbols].some((symbol) => line.startsWith(symbol));
    return this.copied.has("line") && !this.words(line).length && !startsWithSymbol;
  }

  /** The strings of a line that need no translation; adjacent rare words are one. */
  strings(line) {
    const strings = [];
    for (const token of this.tokens(line)) {
      const { text, start, isWord } = token;
      const kind = this.kindOf(token);
      const isCopied = kind || isWord ? this.copied.has(kind) : !this.symbols.has(text);
      if (!isCopied && !this.copied.has(kind.replace(/^first /, ""))) continue;
      const last = strings.at(-1);
      const end = last ? last.start + last.text.length : -1;
      if (last?.isWord && isWord && line.slice(end, start) === " ") {
        last.text += ` ${text}`;
        last.isCopied ||= isCopied;
      } else {
        strings.push({ text, start, isWord, isCopied });
      }
    }
    return strings.filter(({ isCopied }) => isCopied);
  }

  /** A line with names in the place of its strings, and the string of each name. */
  readLine(line) {
    const tokens = this.strings(line).slice(0, this.names.length);
    const strings = new Map(tokens.map(({ text }, i) => [this.names[i], this.written(text)]));
    let [read, end] = ["", 0];
    tokens.forEach(({ text, start }, i) => {
      read += line.slice(end, start) + this.names[i];
      end = start + text.length;
    });
    return [read + line.slice(end), strings];
  }

  /** A translation with the names of its strings, as a model writes it. */
  nameStrings(text, strings) {
    const part = "[\\p{L}\\p{N}_]"; // of a longer word
    const alone = (string) => new RegExp(`(?<!${part})${escaped(string)}(?!${part})`, "u");
    return [...strings].reduce((all, [name, string]) => all.replace(alone(string), name), text);
  }

  /** A translation with the string of each name once, and how many strings it lacks. */
  writeText(text, strings) {
    if (!this.names.length) return [text, 0];
    const lacking = new Map(strings);
    const pattern = new RegExp(`( ?)(${this.names.join("|")})`, "g");
    const written = text.replace(pattern, (_, blank, name) => {
      const string = lacking.get(name);
      return lacking.delete(name) ? blank + string : "";
    });
    return [written.trim(), lacking.size];
  }
}

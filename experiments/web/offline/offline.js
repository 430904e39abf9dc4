"use strict";
// The model inside the page answers what a server would: translations, attention and probabilities.

const TURN = 30; // milliseconds of computing between looks at what the reader does

class OfflineTranslator {
  constructor(spec, base64) {
    this.model = new Transformer(spec.model, readArrays(spec.arrays, base64));
    const [source, target] = ["source", "target"].map(
      (side) => new Tokenizer(spec.tokenizers[spec[side]], spec.rule),
    );
    // Translations as the model wrote them, by the line and what was made of them in its case.
    const asWritten = new Map();
    const [rules, words] = [readRules(spec.segment), new Words(spec.words, source.symbols)];
    const { maxLength } = spec;
    Object.assign(this, { spec, rules, words, source, target, maxLength, asWritten });
  }

  /** Answers as the server's operation of this name does. */
  async answer(operation, asked, signal) {
    const [given] = asked.texts ?? [asked.text];
    const tag = asked.source_tag ? `${asked.source_tag} ` : "";
    if (operation === "attention") return this.attention(tag + given, asked.target);
    if (operation === "next_tokens") return this.nextTokens(tag + given, asked.targets[0], asked);
    if (operation === "alternatives") return this.alternatives(tag + given, asked, signal);
    if (operation === "beam") return this.beam(given, tag, asked.prefix ?? "", signal);
    const best = await this.translate(given, tag, signal, asked.num_best, asked.prefixes?.[0]);
    const segments = this.lines(given, tag).filter((part) => !SPACE_ONLY.test(part));
    const cut = segments.map((part) => this.unread(this.source, tag + part));
    const unread = cut.reduce((total, count) => total + count, 0);
    return { translations: [best.slice(0, asked.num_best)], unread: [unread] };
  }

  /** The translations of a text, best first, as `join` of `segments.py` joins them. */
  async translate(text, tag = "", signal = new AbortController().signal, most = 0, prefix = "") {
    const parts = this.lines(text, tag);
    const isLayout = (part) => SPACE_ONLY.test(part) && part !== text;
    const last = parts.findLastIndex((part) => !isLayout(part));
    const left = splitSentences(prefix, this.rules.target); // dealt to the segments
    const found = [];
    for (const [i, part] of parts.entries()) {
      const { length } = i < last ? splitSentences(part, this.rules) : left;
      const begin = isLayout(part) ? "" : left.splice(0, length).join("");
      const isWhole = left.length > 0 || (i < last && /\s$/.test(begin));
      const start = { text: isWhole ? begin.trimEnd() : begin, isWhole };
      const layout = [{ text: part, score: 0, degenerate: 0 }];
      found.push(isLayout(part) ? layout : await this.translateSegment(tag + part, start, signal));
    }
    return join(found, most || this.spec.decode.beamSize, this.rules);
  }

  /** The segments of each line of a text, and the white space around the lines. */
  lines(text, tag) {
    return splitLines(text, this.rules)
      .flatMap((part) => (SPACE_ONLY.test(part) ? [part] : this.segments(part, tag)));
  }

  /** The parts of a text that are translated by themselves, as `Segmenter` finds them. */
  segments(text, tag) {
    const { splits, sentences: most, tokens } = this.spec.segment;
    const length = (part) => this.source.encode(tag + part).length + 1;
    const sentences = splitSentences(text, this.rules);
    const longest = sentences.length === 1 ? this.maxLength : tokens;
    if (!splits || (sentences.length <= most && length(text) <= longest)) return [text];
    const groups = [];
    let size = 0;
    for (const sentence of sentences) {
      if (size && size < most && length(groups.at(-1) + sentence) <= tokens) {
        groups.push(groups.pop() + sentence);
      } else {
        groups.push(sentence);
        size = 0;
      }
      size += 1;
    }
    const fits = (part) => length(part) <= tokens;
    return groups
      .flatMap((group) => (length(group) <= this.maxLength ? [group] : halve(group, fits, this.rules)))
      .map((part) => part.trim());
  }

  async translateSegment(text, prefix, signal) {
    const line = canonicalize(text, this.spec.rule);
    const copied = this.words.isCopied(line) && !prefix.text ? this.words.written(line) : "";
    if (copied) return [{ text: copied, score: 0, degenerate: 0 }];
    if (this.sourceIds(text).length === 1) return [{ text: "", score: 0, degenerate: 0 }];
    const found = (await this.search(text, prefix, signal)).map(({ ids, score, forced }) => {
      const plain = this.target.decode(ids.slice(0, -1));
      const [whole, lacks] = this.write(plain, text);
      this.asWritten.set(`${text}\n${whole}`, plain);
      const degenerate = Number(forced || lacks > 0 || !whole || loops(whole, text));
      return { text: whole, score, degenerate };
    });
    found.sort((a, b) => a.degenerate - b.degenerate);
    return found.filter((each, i) => found.findIndex(({ text: t }) => t === each.text) === i);
  }

  /** The hypotheses of a line that begin with a prefix; options: of `search`. */
  async search(text, prefix, signal, options = {}) {
    const { transferCase, maxRatio, maxExtra, ...rule } = this.spec.decode;
    const line = canonicalize(text, this.spec.rule);
    const named = this.words.nameStrings(prefix.text, this.readStrings(text)[1]);
    const ignoreCase = transferCase && this.words.readCase(line) !== line;
    const moves = makeMoves(this.target, { ...prefix, text: named }, ignoreCase);
    const ids = this.sourceIds(text);
    const most = Math.floor(maxRatio * ids.length + maxExtra);
    const longest = Math.max(1, Math.min(most, this.maxLength));
    let since = performance.now();
    const all = await search(this.model, ids, { ...rule, longest, moves, ...options }, async () => {
      if (performance.now() - since < TURN) return;
      await new Promise((resolve) => setTimeout(resolve));
      signal.throwIfAborted();
      since = performance.now();
    });
    if (all.length) return all;
    const problem = "has more tokens than a translation of this text may have: shorten it, or";
    throw new Error(`prefix ${quote(prefix.text)} ${problem} raise config.decode.max_ratio`);
  }

  /** What the model wrote in the case of a line and with its strings, and how many it lacks. */
  write(plain, text) {
    const line = canonicalize(text, this.spec.rule);
    const cased = this.spec.decode.transferCase ? this.words.writeCase(plain, line) : plain;
    return this.words.writeText(cased, this.readStrings(text)[1]);
  }

  /** The ids of a translation as the model wrote it. */
  targetIds(text, target) {
    const named = this.words.nameStrings(target, this.readStrings(text)[1]);
    return this.target.encode(this.asWritten.get(`${text}\n${target}`) ?? named);
  }

  /** The ids of a source, of which the model reads the first, and their end. */
  sourceIds(text) {
    return [...this.source.encode(this.readStrings(text)[0]).slice(0, this.maxLength - 1), END_ID];
  }

  /** A line as the model reads it, and its strings by name. */
  readStrings(text) {
    const { rule, decode: { transferCase } } = this.spec;
    return this.words.readLine(transferCase ? this.words.readCase(canonicalize(text, rule)) : text);
  }

  /** The attention over a sentence and its translation, as the explorer reads it. */
  attention(text, target) {
    const ids = this.sourceIds(text);
    const all = this.targetIds(text, target);
    const written = all.slice(0, this.maxLength - 1);
    const { encoded, memory, steps } = this.follow(ids, written);
    const names = (tokenizer, some) => some.map((id) => tokenizer.pieces[id]);
    const unread = { source: this.unread(this.source, text), target: all.length - written.length };
    const end = unread.target ? COMES_NEXT : END_OF_SENTENCE;
    const read = names(this.target, [BEGIN_ID, ...written]);
    const weights = {
      encoder_self: weightArray(encoded.weights),
      decoder_self: weightArray(layersOf(steps, "self")),
      cross: weightArray(layersOf(steps, "cross")),
    };
    const { past } = steps.at(-1);
    return {
      title: text, translation: target, notes: [], unread, omitted: unread,
      source: names(this.source, ids), target: read, written: [...read.slice(1), end],
      frames: [{ label: "", weights, norms: this.norms(encoded, past, memory) }],
    };
  }

  /** The steps in which the model reads a translation, and what it reads of its source. */
  follow(ids, written) {
    const encoded = this.model.encode(ids);
    const memory = this.model.remember(encoded);
    const steps = [];
    for (const id of [BEGIN_ID, ...written]) {
      steps.push(this.model.read(id, steps.at(-1)?.past ?? this.model.noPast(), memory));
    }
    return { encoded, memory, steps };
  }

  /** How probable each token of a translation and its end are, and the most probable ones. */
  nextTokens(text, target, { num_best: count = 5, temperature = 1 }) {
    check("num_best", count, 1, 100);
    check("temperature", temperature, 0.05, 20);
    const all = this.targetIds(text, target);
    const written = all.slice(0, this.maxLength - 1);
    const { steps } = this.follow(this.sourceIds(text), written);
    const tokens = [...written, END_ID].map((id, place) => {
      const scaled = Float64Array.from(steps[place].logits, (logit) => logit / temperature);
      const total = logSumExp(scaled);
      const logProbs = scaled.map((logit) => logit - total);
      const entropy = logProbs.reduce((sum, logProb) => sum - Math.exp(logProb) * logProb, 0);
      const best = continuations([{ logits: scaled, logProb: 0 }], count, false, []);
      return { ...this.named({ id, logProb: logProbs[id] }), entropy, best: best.map(this.named) };
    });
    const unread = { source: this.unread(this.source, text), target: all.length - written.length };
    return { next_tokens: [tokens], unread: [unread] };
  }

  named = ({ id, logProb }) => ({ token: this.target.pieces[id], log_prob: logProb });

  /** The most probable tokens at a place of a translation, and what would follow each of them. */
  async alternatives(text, { target, position, ...asked }, signal) {
    const before = this.targetIds(text, target);
    const { next_tokens: [tokens] } = this.nextTokens(text, target, asked);
    check("position", position, 0, tokens.length - 1);
    const alternatives = [];
    for (const candidate of tokens[position].best) {
      const id = this.target.pieces.indexOf(candidate.token);
      const prefix = { text: target, tokens: [...before.slice(0, position), id] };
      const [{ ids, score }] = await this.search(text, prefix, signal, { beamSize: 1 });
      const [whole] = this.write(this.target.decode(ids.slice(0, -1)), text);
      alternatives.push({ ...candidate, ...this.wordAt(ids, position, text), text: whole, score });
    }
    return { alternatives };
  }

  /** The word in which a token stands, and the text up to its end, with a blank behind it. */
  wordAt(ids, position, text) {
    const pieces = ids.map((id) => this.target.pieces[id]);
    const joins = (place) => /^([\p{L}\p{N}_'’-]|<0x)/u.test(pieces[place])
      && pieces[place].search(this.rules.unspaced) !== 0;
    let [start, end] = [position, Math.min(position + 1, ids.length - 1)];
    while (start && joins(start)) start -= 1;
    while (joins(end)) end += 1;
    const [prefix] = this.write(this.target.decode(ids.slice(0, end)), text);
    const word = this.target.decode(ids.slice(start, end));
    return { word, prefix: pieces[end].startsWith(SPACE) ? `${prefix} ` : prefix };
  }

  /** The steps of the search for the translations of a text that is one segment. */
  async beam(text, tag, prefix, signal) {
    const { length } = this.lines(text, tag).filter((part) => !SPACE_ONLY.test(part));
    if (length > 1) throw new Error(`the text is translated in ${length} parts: give one of them`);
    const record = [];
    await this.search(tag + text, { text: prefix }, signal, { record });
    const steps = record.map((step) => step.map(({ parent, score, fate, ...each }) =>
      ({ parent: parent.place, ...this.named(each), score, fate })));
    const unread = { source: this.unread(this.source, tag + text), target: 0 };
    return { steps, beam_size: this.spec.decode.beamSize, unread };
  }

  unread(tokenizer, text) {
    return Math.max(0, tokenizer.encode(text).length + 1 - this.maxLength);
  }

  norms({ inputs }, past, memory) {
    const pasts = { encoder_self: inputs, decoder_self: past, cross: memory };
    const stacks = { encoder_self: "encoder", decoder_self: "decoder", cross: "decoder" };
    return Object.fromEntries(Object.entries(pasts).map(([kind, layers]) => {
      const name = kind === "cross" ? "cross_attention" : "self_attention";
      const found = layers.map((keys, i) =>
        this.model.valueNorms(`${stacks[kind]}_layers_${i}/${name}`, keys));
      const shape = [found.length, found[0].length, found[0][0].length];
      return [kind, { shape, values: Float32Array.from(found.flat(2)) }];
    }));
  }
}

function check(name, value, least, most) {
  if (value >= least && value <= most) return;
  throw new Error(`${name}=${value} is not between ${least} and ${most}`);
}

/** [layer][head][query][key] of steps of which each has [layer][head][key]. */
function layersOf(steps, name) {
  return steps[0][name].map((_, layer) => byHead(steps.map((step) => step[name][layer])));
}

/** Nested weights as an array, with zeros where a decoder's query sees no key. */
function weightArray(layers) {
  const keys = Math.max(...layers[0][0].map((row) => row.length));
  const rows = layers.flat(2).map((row) => [...row, ...Array(keys - row.length).fill(0)]);
  const shape = [layers.length, layers[0].length, layers[0][0].length, keys];
  return { shape, values: Float32Array.from(rows.flat()) };
}

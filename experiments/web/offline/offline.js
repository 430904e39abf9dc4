"use strict";
// The model inside the page answers what a server would: translations and attention.

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
    const best = await this.translate(given, tag, signal, asked.num_best);
    const segments = this.lines(given, tag).filter((part) => !SPACE_ONLY.test(part));
    const cut = segments.map((part) => this.unread(this.source, tag + part));
    const unread = cut.reduce((total, count) => total + count, 0);
    return { translations: [best.slice(0, asked.num_best)], unread: [unread] };
  }

  /** The translations of a text, best first, as `join` of `segments.py` joins them. */
  async translate(text, tag = "", signal = new AbortController().signal, most = null) {
    const found = [];
    for (const part of this.lines(text, tag)) {
      const isLayout = SPACE_ONLY.test(part) && part !== text;
      const layout = [{ text: part, score: 0, degenerate: 0 }];
      found.push(isLayout ? layout : await this.translateSegment(tag + part, signal));
    }
    return join(found, most ?? this.spec.decode.beamSize, this.rules);
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

  async translateSegment(text, signal) {
    const { transferCase, maxRatio, maxExtra, ...rule } = this.spec.decode;
    const line = canonicalize(text, this.spec.rule);
    const copied = this.words.isCopied(line) ? this.words.written(line) : "";
    if (copied) return [{ text: copied, score: 0, degenerate: 0 }];
    const ids = this.sourceIds(text);
    if (ids.length === 1) return [{ text: "", score: 0, degenerate: 0 }];
    const most = Math.floor(maxRatio * ids.length + maxExtra);
    const longest = Math.max(1, Math.min(most, this.maxLength));
    let since = performance.now();
    const done = await search(this.model, ids, { ...rule, longest }, async () => {
      if (performance.now() - since < TURN) return;
      await new Promise((resolve) => setTimeout(resolve));
      signal.throwIfAborted();
      since = performance.now();
    });
    const found = done.map(({ ids: written, score, forced }) => {
      const plain = this.target.decode(written.slice(0, -1));
      const cased = transferCase ? this.words.writeCase(plain, line) : plain;
      const [whole, lacks] = this.words.writeText(cased, this.readStrings(text)[1]);
      this.asWritten.set(`${text}\n${whole}`, plain);
      const degenerate = Number(forced || lacks > 0 || !whole || loops(whole, text));
      return { text: whole, score, degenerate };
    });
    found.sort((a, b) => a.degenerate - b.degenerate);
    return found.filter((each, i) => found.findIndex(({ text: t }) => t === each.text) === i);
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
    const all = this.target.encode(this.asWritten.get(`${text}\n${target}`) ?? target);
    const written = all.slice(0, this.maxLength - 1);
    const encoded = this.model.encode(ids);
    const memory = this.model.remember(encoded);
    const steps = [];
    for (const id of [BEGIN_ID, ...written]) {
      steps.push(this.model.read(id, steps.at(-1)?.past ?? this.model.noPast(), memory));
    }
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

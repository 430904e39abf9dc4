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
    Object.assign(this, { spec, source, target, maxLength: spec.maxLength, asWritten });
  }

  /** Answers as the server's operation of this name does. */
  async answer(operation, asked, signal) {
    const [given] = asked.texts ?? [asked.text];
    const tag = asked.source_tag ? `${asked.source_tag} ` : "";
    if (operation === "attention") return this.attention(tag + given, asked.target);
    const best = await this.translate(given, tag, signal);
    const cut = this.segments(given, tag).map((part) => this.unread(this.source, tag + part));
    const unread = cut.reduce((total, count) => total + count, 0);
    return { translations: [best.slice(0, asked.num_best)], unread: [unread] };
  }

  /** The translations of a text, best first; those of several segments are joined. */
  async translate(text, tag = "", signal = new AbortController().signal) {
    const found = [];
    for (const part of this.segments(text, tag)) {
      found.push(await this.translateSegment(tag + part, signal));
    }
    return found.reduce(joinBest);
  }

  /** The parts of a text that are translated by themselves, as `Segmenter` finds them. */
  segments(text, tag) {
    const { splits, sentences: most, tokens } = this.spec.segment;
    const length = (part) => this.source.encode(tag + part).length + 1;
    const sentences = splitSentences(text);
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
    return groups.flatMap((group) => (
      length(group) <= this.maxLength ? [group] : halve(group, (part) => length(part) <= tokens)
    ));
  }

  async translateSegment(text, signal) {
    const { transferCase, maxRatio, maxExtra, ...rule } = this.spec.decode;
    const ids = this.sourceIds(text);
    if (ids.length === 1) return [{ text: "", score: 0 }];
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
      const cased = transferCase ? writeCase(plain, text, this.source.symbols) : plain;
      this.asWritten.set(`${text}\n${cased}`, plain);
      const degenerate = forced || !cased || loops(cased, text);
      return { text: cased, score, degenerate };
    });
    found.sort((a, b) => a.degenerate - b.degenerate);
    return found.filter((each, i) => found.findIndex(({ text: t }) => t === each.text) === i);
  }

  /** The ids of a source, of which the model reads the first, and their end. */
  sourceIds(text) {
    const { symbols } = this.source;
    const read = this.spec.decode.transferCase ? readCase(text, symbols) : text;
    return [...this.source.encode(read).slice(0, this.maxLength - 1), END_ID];
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

/** The best translations of two segments as one, see `join` of `segments.py`. */
function joinBest(left, right) {
  const both = left.flatMap((a) => right.map((b) => ({
    text: [a.text, b.text].filter(Boolean).join(" "),
    score: a.score + b.score,
    degenerate: Number(a.degenerate ?? 0) + Number(b.degenerate ?? 0),
  })));
  both.sort((a, b) => a.degenerate - b.degenerate || b.score - a.score);
  const first = both.filter((each, i) => both.findIndex(({ text }) => text === each.text) === i);
  return first.slice(0, Math.max(left.length, right.length));
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

/** Sentences with the blanks after them; what ends in a short word like Mr. joins the next. */
function splitSentences(text) {
  const segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" });
  const sentences = [];
  for (const { segment } of segmenter.segment(text)) {
    const isShort = /(?<!\p{L})(?:\p{Lu}\p{L}{0,2}|\p{L})\.\s*$/u.test(sentences.at(-1) ?? "");
    if (isShort) sentences.push(sentences.pop() + segment);
    else sentences.push(segment);
  }
  return sentences.length ? sentences : [text];
}

/** The parts of a text that fit, cut at the blank that is nearest to the middle. */
function halve(text, fits) {
  const middle = text.length / 2;
  const blanks = [...text.matchAll(/\s+/gu)].map(({ index }) => index);
  if (fits(text) || !blanks.length) return [text];
  const nearest = blanks.reduce((a, b) => (Math.abs(b - middle) < Math.abs(a - middle) ? b : a));
  const parts = [text.slice(0, nearest), text.slice(nearest).trim()];
  return parts.flatMap((part) => halve(part, fits));
}

"use strict";
// The Transformer of one sentence, a token at a time (Vaswani et al. 2017), of Float32Array.

const ACTIVATIONS = {
  relu: (x) => Math.max(0, x),
  gelu: (x) => (x / 2) * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  silu: (x) => x / (1 + Math.exp(-x)),
};

/** Reads the arrays of a model, see `make_model` in `transformer/bridges/browser.py`. */
function readArrays(entries, base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const rows = Math.max(...entries.map(([, first, count]) => first + count));
  const steps = new Float32Array(bytes.buffer, 0, rows);
  const numbers = new Int16Array(bytes.buffer, 4 * rows);
  const read = {}; // what several names share is read once
  const arrays = {};
  for (const [name, first, count, columns, start] of entries) {
    read[first] ??= Float32Array.from(
      numbers.subarray(start, start + count * columns),
      (number, i) => number * steps[first + Math.floor(i / columns)],
    );
    arrays[name] = { rows: count, columns, values: read[first] };
  }
  return arrays;
}

function plus(x, y) {
  return x.map((value, i) => value + y[i]);
}

function dot(x, y, start = 0) {
  let total = 0;
  for (let i = 0; i < x.length; i++) total += x[i] * y[start + i];
  return total;
}

/** The weights that are largest where the scores are; they sum to one. */
function softmax(scores) {
  const most = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - most));
  const total = exponentials.reduce((a, b) => a + b, 0);
  return exponentials.map((each) => each / total);
}

class Transformer {
  constructor(spec, arrays) {
    Object.assign(this, spec, { arrays });
  }

  /**
   * Reads a source: {states, inputs, weights}, the hidden states, per layer keys and values, and
   * the weights [layer][head][query][key].
   */
  encode(ids) {
    let states = ids.map((id, i) => this.embed("encoder", id, i));
    const found = { inputs: [], weights: [] };
    for (let layer = 0; layer < this.depths.encoder; layer++) {
      const name = `encoder_layers_${layer}`;
      const [attention, around] = [`${name}/self_attention`, `${name}/self_attention_residual`];
      const entered = states.map((x) => this.enter(x, around));
      const keys = entered.map((x, i) => this.keyValue(x, attention, this.rotary.encoder && i));
      const seen = entered.map((x, i) => this.attend(x, attention, keys, "encoder", i));
      states = states.map((x, i) => this.leave(x, seen[i].output, around));
      states = states.map((x) => this.feedForward(x, name));
      found.inputs.push(keys);
      found.weights.push(byHead(seen.map((each) => each.weights)));
    }
    return { ...found, states: this.end(states, "encoder") };
  }

  /** What the decoder needs of a source: keys and values of each layer's cross-attention. */
  remember({ states }) {
    return Array.from({ length: this.depths.decoder }, (_, layer) =>
      states.map((x) => this.keyValue(x, `decoder_layers_${layer}/cross_attention`, false)));
  }

  /**
   * Reads a target token. past: per layer, the keys and values of the tokens before; it is not
   * changed. Returns {logits, past, self, cross}, the last two weights [layer][head][key].
   */
  read(id, past, memory) {
    const place = past[0].length;
    const found = { past: [], self: [], cross: [] };
    let x = this.embed("decoder", id, place);
    for (let layer = 0; layer < this.depths.decoder; layer++) {
      const name = `decoder_layers_${layer}`;
      let around = `${name}/self_attention_residual`;
      const input = this.enter(x, around);
      const own = this.keyValue(input, `${name}/self_attention`, this.rotary.decoder && place);
      const keys = [...past[layer], own];
      const self = this.attend(input, `${name}/self_attention`, keys, "decoder", place);
      x = this.leave(x, self.output, around);
      around = `${name}/cross_attention_residual`;
      const query = this.enter(x, around);
      const cross = this.attend(query, `${name}/cross_attention`, memory[layer], "", place);
      x = this.feedForward(this.leave(x, cross.output, around), name);
      found.past.push(keys);
      found.self.push(self.weights);
      found.cross.push(cross.weights);
    }
    const [state] = this.end([x], "decoder");
    return { ...found, logits: this.logits(state) };
  }

  noPast() {
    return Array.from({ length: this.depths.decoder }, () => []);
  }

  /** ‖v W^O‖ of each head of a layer and each key (Kobayashi et al. 2020, equation 4). */
  valueNorms(attention, past) {
    const kernel = this.arrays[`${attention}/output/kernel`];
    return Array.from({ length: this.heads }, (_, head) => past.map(({ value }) => {
      const alone = value.map((v, i) => (Math.floor(i / this.headWidth) === head ? v : 0));
      return Math.hypot(...times(alone, kernel, null));
    }));
  }

  // -- parts of layers

  embed(half, id, place) {
    const table = this.arrays[half === "encoder" ? "source_table" : "target_table"];
    const start = id * table.columns;
    const root = Math.sqrt(table.columns);
    const x = table.values.slice(start, start + table.columns).map((value) => value * root);
    const added = this.arrays[`${half}_positions`];
    return added ? plus(x, added.values.subarray(place * added.columns)) : x;
  }

  /** The logit of each token, its embedding's product with a hidden state. */
  logits(x) {
    const { rows, columns, values } = this.arrays.output_table;
    const bias = this.arrays.output_bias?.values;
    return Float32Array.from({ length: rows }, (_, id) =>
      dot(x, values, id * columns) + (bias ? bias[id] : 0));
  }

  linear(x, name) {
    return times(x, this.arrays[`${name}/kernel`], this.arrays[`${name}/bias`]);
  }

  /** The key and the value of a token, rotated to its place unless that is false. */
  keyValue(x, attention, place) {
    const key = this.linear(x, `${attention}/key`);
    return { key: this.rotated(key, place), value: this.linear(x, `${attention}/value`) };
  }

  /** Equation 1 for one query; half: whose distances its scores depend on, "" for none. */
  attend(x, attention, past, half, place) {
    const query = this.rotated(this.linear(x, `${attention}/query`), this.rotary[half] && place);
    const width = this.headWidth;
    const heads = new Float32Array(query.length);
    const bias = this.arrays[`${half}_bias`];
    const weights = [];
    for (let head = 0; head < this.heads; head++) {
      const [first, end] = [head * width, (head + 1) * width];
      const own = query.subarray(first, end);
      const scores = past.map(({ key }, i) => {
        const distance = bias ? (bias.columns - 1) / 2 + i - place : 0;
        const added = bias ? bias.values[head * bias.columns + distance] : 0;
        return dot(own, key, first) / Math.sqrt(width) + added;
      });
      weights.push(softmax(scores));
      past.forEach(({ value }, i) => {
        for (let k = first; k < end; k++) heads[k] += weights[head][i] * value[k];
      });
    }
    return { output: this.linear(heads, `${attention}/output`), weights };
  }

  /** Rotates each pair of dimensions by the place's angle (Su et al. 2021, equation 34). */
  rotated(x, place) {
    if (place === false || place === undefined) return x;
    const y = new Float32Array(x.length);
    for (let i = 0; i < x.length; i += 2) {
      const angle = place * 10000 ** (-(i % this.headWidth) / this.headWidth);
      const [sine, cosine] = [Math.sin(angle), Math.cos(angle)];
      y[i] = x[i] * cosine - x[i + 1] * sine;
      y[i + 1] = x[i] * sine + x[i + 1] * cosine;
    }
    return y;
  }

  feedForward(x, layer) {
    const [name, around] = [`${layer}/feed_forward`, `${layer}/feed_forward_residual`];
    const input = this.enter(x, around);
    let inner = this.linear(input, `${name}/inner`).map(ACTIVATIONS[this.activation]);
    if (this.gated) {
      const gate = this.linear(input, `${name}/gate`);
      inner = inner.map((value, i) => value * gate[i]);
    }
    return this.leave(x, this.linear(inner, `${name}/outer`), around);
  }

  /** What a sub-layer gets of a hidden state, and below what becomes of both [3.1]. */
  enter(x, around) {
    if (this.normPosition === "post") return x;
    return this.norm(x, `${around}/${this.normPosition === "both" ? "norm_in" : "norm"}`);
  }

  leave(x, y, around) {
    if (this.normPosition === "post") return this.norm(plus(x, y), `${around}/norm`);
    return plus(x, this.normPosition === "both" ? this.norm(y, `${around}/norm_out`) : y);
  }

  end(states, half) {
    return this.normPosition === "post" ? states : states.map((x) => this.norm(x, `${half}_norm`));
  }

  norm(x, name) {
    const mean = this.centered ? x.reduce((a, b) => a + b, 0) / x.length : 0;
    const variance = x.reduce((total, value) => total + (value - mean) ** 2, 0) / x.length;
    const scale = this.arrays[`${name}/scale`].values;
    const bias = this.arrays[`${name}/bias`]?.values;
    const root = Math.sqrt(variance + this.epsilon);
    return x.map((value, i) => ((value - mean) / root) * scale[i] + (bias ? bias[i] : 0));
  }
}

/** x W + b. */
function times(x, { columns, values }, bias) {
  const y = bias ? bias.values.slice() : new Float32Array(columns);
  for (let i = 0; i < x.length; i++) {
    const [factor, start] = [x[i], i * columns];
    if (factor) for (let j = 0; j < columns; j++) y[j] += factor * values[start + j];
  }
  return y;
}

/** [query][head][key] as [head][query][key]. */
function byHead(weights) {
  return weights[0].map((_, head) => weights.map((ofQuery) => ofQuery[head]));
}

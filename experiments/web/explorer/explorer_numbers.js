"use strict";
// What the page shows as numbers: decoding and arithmetic, in double precision, without the page.
// A head's matrix is an array of rows (queries) of weights (keys).

const END_OF_SENTENCE = "</s>";
const COMES_NEXT = "(next)"; // what is written after the last token of a text that may go on
const ROUNDING = 1e-5; // of a sum of weights
const WORD_MARK = "\u2581"; // sentencepiece's: it begins a word
// Scripts that have no blanks between words.
const UNSPACED = /[\p{scx=Han}\p{scx=Hira}\p{scx=Kana}\p{scx=Thai}\p{scx=Laoo}\p{scx=Khmr}\p{scx=Mymr}]/u;

/** Reads float32 numbers, in base64, little-endian and in C order unless there are `values`. */
function decodeFloats({ shape, float32, values: there }) {
  if (there) return { shape, values: there };
  const bytes = Uint8Array.from(atob(float32), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const values = new Float32Array(bytes.length / 4);
  for (let i = 0; i < values.length; i++) values[i] = view.getFloat32(4 * i, true);
  return { shape, values };
}

/** The rows of one head of an array [layers, heads, queries, keys]; layer and head from 0. */
function headRows({ shape, values }, layer, head) {
  const [, heads, queries, keys] = shape;
  const start = (layer * heads + head) * queries * keys;
  return Array.from({ length: queries }, (_, i) =>
    Array.from(values.subarray(start + i * keys, start + (i + 1) * keys)),
  );
}

/** The values of one head of an array [layers, heads, keys]. */
function headNorms({ shape, values }, layer, head) {
  const [, heads, keys] = shape;
  const start = (layer * heads + head) * keys;
  return Array.from(values.subarray(start, start + keys));
}

function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}

/**
 * Rows without their last weight, the end of the sentence's, divided by all weight that is not
 * there; a row without more stays zeros.
 */
function renormalise(rows) {
  return rows.map((row) => {
    const kept = row.slice(0, -1);
    const missing = 1 - sum(row); // rounding, or the weight of a sink and of keys beyond the page
    const total = sum(kept) + (missing > ROUNDING ? missing : 0);
    return kept.map((weight) => (total > 0 ? weight / total : 0));
  });
}

/** Weights times the length of the vector that each key hands on. */
function timesNorms(rows, norms) {
  return rows.map((row) => row.map((weight, key) => weight * norms[key]));
}

/**
 * Which tokens make a word: [first, end) of each. The marks of a sentence stand alone; a word's
 * mark that is a token of its own belongs to what follows. What has no blanks is divided further.
 */
function wordSpans(tokens) {
  const alone = (token) => ["<s>", END_OF_SENTENCE, COMES_NEXT].includes(token);
  const marked = (token, before) => token.startsWith(WORD_MARK) && before !== WORD_MARK;
  const spans = [];
  tokens.forEach((token, i) => {
    const before = tokens[i - 1];
    if (i === 0 || marked(token, before) || alone(token) || alone(before)) spans.push([i, i + 1]);
    else spans.at(-1)[1] = i + 1;
  });
  return spans.flatMap((span) => divideUnspaced(tokens, span));
}

/** The words of a span, which begin at tokens, if its script has no blanks; else the span. */
function divideUnspaced(tokens, [first, end]) {
  const text = tokens.slice(first, end).join("");
  if (!UNSPACED.test(text)) return [[first, end]];
  const words = Intl.Segmenter && new Intl.Segmenter(undefined, { granularity: "word" }).segment(text);
  const starts = words && new Set([...words].map(({ index }) => index));
  const cuts = [first];
  let place = tokens[first].length;
  for (let i = first + 1; i < end; i++) {
    // Without the browser's words each token is one.
    if (text[place - 1] !== WORD_MARK && (starts?.has(place) ?? true)) cuts.push(i);
    place += tokens[i].length;
  }
  return cuts.map((cut, i) => [cut, cuts[i + 1] ?? end]);
}

/** A word's columns are summed, and its rows averaged: a row's sum stays what it was. */
function joinWords(rows, querySpans, keySpans) {
  const narrow = rows.map((row) => keySpans.map(([first, end]) => sum(row.slice(first, end))));
  return querySpans.map(([first, end]) =>
    keySpans.map((_, key) => sum(narrow.slice(first, end).map((row) => row[key])) / (end - first)),
  );
}

/** The tokens of a span as one name. */
function spanName(tokens, [first, end]) {
  return tokens.slice(first, end).join("").replace(/^\u2581+(?=.)/s, "");
}

/** Whether there is an end-of-sentence among a sentence's keys that can be left out. */
function canHideEnd(example, kind) {
  return kind.keys === "source" && example.source.length > 1
    && example.source.at(-1) === END_OF_SENTENCE;
}

/**
 * One head as it is chosen: {queries, keys, after, rows}, with a name for each row and column, and
 * in `after`, of rows that write tokens, the token that was read before the first of them.
 * choice: {kind, layer, head, frame} from 0, and {end, values, tokens} as in the page's address.
 */
function headMatrix(example, kind, choice) {
  const frame = example.frames[choice.frame];
  let rows = headRows(frame.weights[choice.kind], choice.layer, choice.head);
  let queries = example[kind.queries];
  let keys = example[kind.keys];
  const lengths = choice.values === "norms" && frame.norms[choice.kind];
  const norms = lengths ? headNorms(lengths, choice.layer, choice.head) : null;
  if (norms) rows = timesNorms(rows, norms);
  if (choice.end === "hidden" && canHideEnd(example, kind)) {
    const square = kind.queries === kind.keys;
    if (square) rows = rows.slice(0, -1);
    // Lengths are not fractions: they stay as they are.
    if (norms) rows = rows.map((row) => row.slice(0, -1));
    else rows = renormalise(rows);
    keys = keys.slice(0, -1);
    if (square) queries = keys;
  }
  let after = kind.queries === "written" ? example.target : null;
  if (choice.tokens === "words") {
    const [querySpans, keySpans] = [wordSpans(queries), wordSpans(keys)];
    rows = joinWords(rows, querySpans, keySpans);
    after &&= querySpans.map(([first]) => after[first]);
    queries = querySpans.map((span) => spanName(queries, span));
    keys = keySpans.map((span) => spanName(keys, span));
  }
  return { queries, keys, after, rows };
}

/** The mean over the rows: the weights of a head over all of the text. */
function meanRow(rows) {
  return rows[0].map((_, key) => sum(rows.map((row) => row[key])) / rows.length);
}

/** The keys of a row from the largest weight to the smallest. */
function strongest(row) {
  return row.map((_, key) => key).sort((a, b) => row[b] - row[a] || a - b);
}

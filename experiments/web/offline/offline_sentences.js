"use strict";
// Splits texts into segments and joins their translations by the rules that `segment_rules` in
// `transformer/inference/segments.py` gives, as it does it itself.

const SPACE_ONLY = /^\p{White_Space}+$/u;

/** The rules with their patterns as regular expressions. */
function readRules(spec) {
  const read = (pattern, flags) => new RegExp(pattern, `su${flags}`);
  return {
    ...spec,
    candidate: read(spec.candidate, "g"),
    rules: spec.rules.map(([at, ends]) => [read(at, "y"), ends]),
    layout: read(spec.layout, ""),
    break: read(spec.break, ""),
    clause: read(spec.clause, "g"),
    unspaced: read(spec.unspaced, "g"),
    target: spec.target && readRules(spec.target),
  };
}

/** The lines of a text, and between them their breaks with the white space around them. */
function splitLines(text, rules) {
  return rules.break.test(text.trimEnd()) ? text.split(rules.layout).filter(Boolean) : [text];
}

/** The sentences of a text with the white space behind them; joined, they are the text. */
function splitSentences(text, { candidate, rules, reach }) {
  const sentences = [];
  let begin = 0;
  for (const marks of text.matchAll(candidate)) {
    const after = marks.index + marks[0].length;
    const rest = text.slice(begin, after + reach);
    const first = rules.find(([at]) => {
      at.lastIndex = after - begin;
      return at.test(rest);
    });
    if (first && !first[1]) continue;
    const end = after + text.slice(after).match(/^\p{White_Space}*/u)[0].length;
    sentences.push(text.slice(begin, end));
    begin = end;
  }
  const rest = text.slice(begin);
  if (sentences.length && !/\p{L}/u.test(rest)) sentences.push(sentences.pop() + rest);
  else sentences.push(rest);
  return sentences;
}

/** The parts of a text that fit, halved at a clause, at white space or between characters. */
function halve(text, fits, rules) {
  const characters = Array.from(text);
  if (characters.length < 2 || fits(text)) return [text];
  const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text);
  const ends = (matches, length) => [...matches].map((match) => match.index + length(match));
  const ofMatches = (pattern) => ends(text.matchAll(pattern), ([whole]) => whole.length);
  const half = Math.floor(characters.length / 2);
  const cut = nearest(ofMatches(rules.clause), text, Math.floor(half / 2))
    || nearest(ofMatches(/\s/gu), text, half)
    || nearest(ends(graphemes, ({ segment }) => segment.length), text, half)
    || characters.slice(0, half).join("").length;
  return [text.slice(0, cut), text.slice(cut)].flatMap((part) => halve(part, fits, rules));
}

/** The end that is nearest to a text's middle, within `reach` characters, or null. */
function nearest(ends, text, reach) {
  const place = (end) => Array.from(text.slice(0, end)).length; // in characters
  const middle = Math.floor(place(text.length) / 2);
  const [first, last] = [text.length - text.trimStart().length, text.trimEnd().length];
  const near = ends.filter((end) => first < end && end < last)
    .map((end) => [Math.abs(place(end) - middle), end])
    .filter(([distance]) => distance <= reach);
  return near.reduce((a, b) => (b[0] < a[0] ? b : a), [Infinity, null])[1];
}

/** The best translations of a line, `most` of them, given those of its segments. */
function join(parts, most, { unspaced }) {
  const bytes = (text) => new TextEncoder().encode(text).length;
  const texts = parts.map(([best]) => best.text).filter((text) => !SPACE_ONLY.test(text));
  const whole = texts.join("");
  const spaced = 3 * bytes((whole.match(unspaced) ?? []).join("")) < bytes(whole);
  const both = (left, right) => {
    const [end, start] = [Array.from(left).at(-1) ?? "", Array.from(right)[0] ?? ""];
    const isJoined = !end || !start || end.match(unspaced) || /\s/u.test(end + start);
    const isSeparate = spaced || /^[\0-\x7f]*$/.test(end + start);
    return left + (!isJoined && isSeparate ? " " : "") + right;
  };
  const [first, ...others] = parts;
  return others.reduce((best, part) => {
    const pairs = best.flatMap((a) => part.slice(0, most).map((b) => ({
      text: both(a.text, b.text),
      score: a.score + b.score,
      degenerate: a.degenerate + b.degenerate,
    })));
    pairs.sort((a, b) => a.degenerate - b.degenerate || b.score - a.score);
    const isFirst = ({ text }, i) => pairs.findIndex((each) => each.text === text) === i;
    return pairs.filter(isFirst).slice(0, most);
  }, first.slice(0, most));
}

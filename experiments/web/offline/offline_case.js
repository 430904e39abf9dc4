"use strict";
// A line in capitals or title case is read in sentence case and written in its own, as
// `transformer/data/characters.py` does it. symbols: strings that are always one token.

const LETTERS = /[\p{Alphabetic}\p{M}]+(?:['’][\p{Alphabetic}\p{M}]+)*/gu;
const isUpper = (text) => text === text.toUpperCase() && text !== text.toLowerCase();

function isCapitals(text) {
  const letters = (text.match(LETTERS) ?? []).join("");
  return letters.length >= 4 && isUpper(letters);
}

function isTitle(text) {
  const words = text.match(LETTERS) ?? [];
  return words.length >= 4 && words.every((word) => isUpper([...word][0]));
}

/** A changed text, in which symbols are as they were: private characters stand for them. */
function outside(symbols, text, change) {
  const code = (i) => String.fromCodePoint(0xe000 + i);
  const hidden = symbols.reduce((found, symbol, i) => found.replaceAll(symbol, code(i)), text);
  return symbols.reduce((found, symbol, i) => found.replaceAll(code(i), symbol), change(hidden));
}

function readCase(line, symbols) {
  const starts = /(?:^|(?<=[.!?…] ))[^\p{Alphabetic}\p{M}\p{Nd}_]*[\p{Alphabetic}\p{M}\p{Nd}_]/gu;
  return outside(symbols, line, (text) => {
    if (!isCapitals(text) && !isTitle(text)) return text;
    return text.toLowerCase().replace(starts, (start) => start.toUpperCase());
  });
}

function writeCase(text, line, symbols) {
  const first = /(?<![\p{Alphabetic}\p{M}\p{Nd}_'’])[\p{Alphabetic}\p{M}\p{Nd}_]/gu;
  let change = (written) => written;
  outside(symbols, line, (own) => {
    if (isCapitals(own)) change = (written) => written.toUpperCase();
    else if (isTitle(own)) change = (written) => written.replace(first, (c) => c.toUpperCase());
    return own;
  });
  return outside(symbols, text, change);
}

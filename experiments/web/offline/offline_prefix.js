"use strict";
// Automata that force how a translation begins, as `transformer/inference/prefixes.py` makes them.

/**
 * For each state of an automaton, the next state by the tokens that are possible, or null if all
 * are. All words of a text but the last have the tokenizer's segmentation, unless it may have any
 * case. tokens: the beginning of the text, if it is given. isWhole: the translation ends with it.
 */
function makeMoves(tokenizer, { text, tokens, isWhole }, ignoreCase) {
  const normal = tokens ? "" : tokenizer.normalize(text);
  const encode = (part) => tokenizer.encode(part.replaceAll(SPACE, " "));
  const place = ignoreCase ? 0 : Math.max(0, normal.lastIndexOf(SPACE));
  const fixed = tokens ?? encode(normal.slice(0, place));
  const last = normal.slice(place) + (normal && /\s$/.test(text) ? SPACE : "");
  const fold = (piece) => (ignoreCase ? piece.toLowerCase() : piece);
  const bytesOf = (piece) => String.fromCharCode(...new TextEncoder().encode(fold(piece)));
  const rest = bytesOf(last);
  const [start, end] = [fixed.length, fixed.length + rest.length];
  const moves = fixed.map((id, i) => new Map([[id, i + 1]]));
  moves[end] = isWhole ? new Map([[END_ID, end]]) : null;
  const written = rest ? tokenizer.pieces.map((piece, id) => {
    const byte = tokenizer.bytes.indexOf(id);
    return [id, byte < 0 ? bytesOf(piece) : String.fromCharCode(byte)];
  }).filter(([id]) => ![...NEVER_WRITTEN, END_ID].includes(id)) : [];
  for (let state = end - 1; state >= start; state--) { // backwards, to leave out dead ends
    const left = rest.slice(state - start);
    const next = written.filter(([, bytes]) => bytes.startsWith(left) || left.startsWith(bytes))
      .map(([id, bytes]) => [id, Math.min(end, state + bytes.length)]);
    moves[state] = new Map(next.filter(([, to]) => moves[to]?.size !== 0));
  }
  if (!fixed.includes(UNKNOWN_ID) && moves[start]?.size !== 0) return moves;
  const unknown = Array.from(text).find((c) => tokenizer.encode(c).includes(UNKNOWN_ID));
  const has = unknown ? `has '${unknown}', which` : "begins no word that";
  throw new Error(`prefix ${quote(text)} ${has} the tokenizer does not have: leave it out`);
}

/** A text in a message, of which the middle may be left out. */
const quote = (text) => `'${text.replace(/^(.{28}).{4,}(.{27})$/su, "$1...$2")}'`;

"use strict";
// Beam search [6.1], as `transformer/decoding/search.py` does it, for one sentence.

const PENALTIES = {
  gnmt: (length, alpha) => ((5 + length) / 6) ** alpha,
  average: (length, alpha) => length ** alpha,
  none: () => 1,
};
const NEVER_WRITTEN = [PAD_ID, UNKNOWN_ID, BEGIN_ID];

/**
 * The translations of a source, best first: {ids, score, forced}, ids with their end.
 * rest: awaited before each step; it may throw to end the search.
 * moves: see `makeMoves`. record: gets the continuations of each step, most probable first.
 */
async function search(model, ids, { beamSize, penalty, alpha, longest, moves, record }, rest) {
  const memory = model.remember(model.encode(ids));
  const over = (logProb, length) => logProb / PENALTIES[penalty](length, alpha);
  let live = [{ ids: [], logProb: 0, past: model.noPast(), state: 0, place: 0 }];
  let done = [];
  let completed = 0;
  for (let length = 1; length <= longest; length++) {
    await rest();
    for (const each of live) {
      Object.assign(each, model.read(each.ids.at(-1) ?? BEGIN_ID, each.past, memory));
    }
    const options = continuations(live, 2 * beamSize, length === longest, moves);
    const kept = options.filter(({ id }) => id !== END_ID).slice(0, beamSize);
    options.forEach((each, rank) => {
      const isFinished = each.id === END_ID && rank < beamSize;
      each.score = over(each.logProb, length);
      each.fate = kept.includes(each) ? "kept" : isFinished ? "finished" : "pruned";
      if (!isFinished) return;
      done.push({ ids: [...each.parent.ids, END_ID], score: each.score, forced: each.forced });
      completed += 1;
    });
    record?.push(options);
    done = done.sort((a, b) => b.score - a.score).slice(0, beamSize);
    live = kept.map(({ parent: { ids: before, past, state }, id, logProb }, place) =>
      ({ ids: [...before, id], logProb, past, state: moves[state]?.get(id) ?? state, place }));
    if (!live.length) break;
    if (completed >= beamSize && done[0].score >= over(live[0].logProb, length)) break;
  }
  return done;
}

/** The most probable continuations of hypotheses, best first; at the limit only their ends. */
function continuations(live, count, atLimit, moves) {
  const best = [];
  for (const parent of live) {
    const shift = logSumExp(parent.logits) - parent.logProb;
    const forced = atLimit && parent.logits.some((logit) => logit > parent.logits[END_ID]);
    parent.logits.forEach((logit, id) => {
      if (atLimit ? id !== END_ID : NEVER_WRITTEN.includes(id)) return;
      if (moves[parent.state]?.has(id) === false) return;
      const logProb = logit - shift;
      if (best.length === count && logProb <= best.at(-1).logProb) return;
      const place = best.findLastIndex((each) => each.logProb >= logProb) + 1;
      best.splice(place, 0, { parent, id, logProb, forced });
      best.length = Math.min(best.length, count);
    });
  }
  return best;
}

function logSumExp(logits) {
  const most = logits.reduce((a, b) => Math.max(a, b));
  return most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0));
}

/** Whether a translation has a phrase three times in a row, and its source has not. */
function loops(text, source) {
  const count = repetitions(text, 10);
  return count > 2 && count > 2 * repetitions(source, 0);
}

function repetitions(text, least) {
  const plain = text.toLowerCase().replace(/(?<=[\p{L}\p{N}_])[^\p{L}\p{N}_\s]?\s*/gu, "");
  const found = [...plain.matchAll(/(.{1,80}?)\1\1+/gu)].filter(([all]) => all.length >= least);
  return Math.max(1, ...found.map(([all, phrase]) => all.length / phrase.length));
}

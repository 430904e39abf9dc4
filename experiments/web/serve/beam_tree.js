"use strict";
// The beam search as a tree: a column for each step, in which no lines cross, and why a text fell out.

const [ROW, BOX, BETWEEN, LONGEST] = [30, 22, 34, 14]; // pixels; and characters of a name

/**
 * The search as {steps, won}: nodes by step, each with its parent, rank, the tokens so far and a row
 * where no lines cross; and the one that won, whose text the first answer is.
 */
function readBeam(found, answer) {
  let kept = [{ tokens: [], row: 0 }];
  const steps = found.steps.map((step, t) => {
    const nodes = step.map((each, rank) => {
      const parent = kept[each.parent];
      return { ...each, parent, rank, step: t, tokens: [...parent.tokens, each.token] };
    });
    // Children stand in the order of their parents, and next to their sisters.
    const inOrder = [...nodes].sort((a, b) => a.parent.row - b.parent.row || a.rank - b.rank);
    inOrder.forEach((node, row) => (node.row = row));
    kept = nodes.filter(({ fate }) => fate === "kept");
    return nodes;
  });
  const done = steps.flat().filter(({ fate }) => fate === "finished").sort((a, b) => b.score - a.score);
  const same = done.find(({ tokens }) => joinTokens(tokens) === answer);
  // An empty translation comes last; without any, the first is what is left.
  const won = same ?? done.find(({ step }) => step) ?? done[0] ?? steps.at(-1)[0];
  return { steps, won, size: found.beam_size };
}

function pathOf(node) {
  return node?.parent ? [...pathOf(node.parent), node] : [];
}

/** A node in words. */
function nodeSentence({ tokens, token, step, rank, fate, log_prob: logProb, score }) {
  const end = token === END_OF_SENTENCE ? ", with its end" : "";
  return `“${joinTokens(tokens)}”${end}: log-probability ${signed(logProb)} nats, score `
    + `${signed(score)}, rank ${rank + 1} of step ${step + 1}, ${fate}`;
}

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Draws the tree; tell(sentence) is called for the one that is pointed at. Returns {mark(nodes)}. */
function drawBeam(place, { steps, won }, tell) {
  const name = ({ token }) => {
    const all = [...visible(token)];
    return all.length > LONGEST ? `${all.slice(0, LONGEST - 1).join("")}…` : all.join("");
  };
  const room = (text) => [...text].reduce((sum, c) => sum + (c > "\u2e7f" ? 15 : 8.8), 20);
  const [lines, boxes, heads] = [[], [], []];
  const best = new Set(pathOf(won));
  let pinned = null;
  let x = 14;
  const show = (node) => {
    const path = new Set(pathOf(node));
    for (const each of steps.flat()) {
      for (const part of [each.line, each.box]) part.classList.toggle("now", path.has(each));
    }
    tell(nodeSentence(node ?? won));
  };
  const pin = (node) => {
    (pinned ?? won).box.setAttribute("tabindex", -1);
    pinned = node;
    node.box.setAttribute("tabindex", 0);
    show(node);
  };
  steps.forEach((nodes, t) => {
    const width = Math.max(...nodes.map((node) => room(name(node))));
    heads.push(drawn("text", { x: x + BETWEEN + width / 2, y: 12, class: "step" }, `${t + 1}`));
    for (const node of nodes) {
      const y = 36 + ROW * node.row;
      const [from, left] = [node.parent.parent ? node.parent.right : x, x + BETWEEN];
      const middle = node.parent.y ?? 36;
      const kind = `${node.fate}${best.has(node) ? " best" : ""}`;
      const bend = `C${from + BETWEEN / 2},${middle} ${left - BETWEEN / 2},${y} ${left},${y}`;
      node.line = drawn("path", { d: `M${from},${middle} ${bend}`, class: kind });
      const box = { x: left, y: y - BOX / 2, width, height: BOX };
      const square = { x: left + 3, y: y - BOX / 2 + 3, width: width - 6, height: BOX - 6 };
      node.box = drawn(
        "g",
        {
          class: kind, role: "button", tabindex: node === won ? 0 : -1,
          "aria-label": nodeSentence(node),
        },
        drawn("rect", { ...box, rx: node.fate === "finished" ? 0 : BOX / 2 }),
        ...(node.fate === "finished" ? [drawn("rect", square)] : []),
        drawn("text", { x: left + width / 2, y: y + 4.5 }, name(node)),
      );
      for (const [event, act] of [["click", pin], ["focus", pin], ["pointerenter", show]]) {
        node.box.addEventListener(event, () => act(node));
      }
      node.box.addEventListener("pointerleave", () => show(pinned));
      Object.assign(node, { right: left + width, y });
      lines.push(node.line);
      boxes.push(node.box);
    }
    x += BETWEEN + width;
  });
  const most = Math.max(...steps.map((nodes) => nodes.length));
  const [width, height] = [x + 4, 36 + ROW * most - BOX / 2];
  const order = [...lines].sort((a, b) => a.matches(".best") - b.matches(".best"));
  const start = drawn("circle", { cx: 11, cy: 36, r: 4 });
  place.replaceChildren(drawn(
    "svg", { width, height, role: "group", "aria-label": "The search: a column for each step" },
    ...heads, ...order, start, ...boxes,
  ));
  place.onkeydown = (event) => {
    const { parent, step, row } = pinned ?? won;
    const inRow = (by) => steps[step].find((node) => node.row === row + by);
    const moves = {
      ArrowLeft: () => parent.box && parent,
      ArrowRight: () => steps[step + 1]?.find((node) => node.parent === pinned),
      ArrowUp: () => inRow(-1), ArrowDown: () => inRow(1),
    };
    if (!event.target.closest("g") || !(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]()?.box.focus();
  };
  show(pinned);
  return { mark: (nodes) => {
    for (const node of steps.flat()) node.box.classList.toggle("asked", nodes.includes(node));
  } };
}

/**
 * Why a text is not the translation that was found: [a sentence, the nodes that it went through].
 * entries: its tokens and their log-probabilities, as `next_tokens` tells them.
 */
function whyNot({ steps, won, size }, text, entries) {
  const ended = (node) => {
    const score = signed(node.score);
    const lost = `was finished with score ${score} and lost against ${signed(won.score)}`;
    return [`It ${node === won ? `is the one that won, with score ${score}` : lost}.`, pathOf(node)];
  };
  // The search may have written it in other tokens than the tokenizer does.
  const same = [won, ...steps.flat()].find(({ fate, tokens }) =>
    fate === "finished" && joinTokens(tokens) === text.trim());
  if (same) return ended(same);
  let [node, total] = [undefined, 0];
  for (const [t, { token, log_prob: logProb }] of entries.entries()) {
    const before = node;
    total += logProb;
    node = steps[t]?.find((each) => each.token === token && (!t || each.parent === before));
    if (node?.fate === "finished") return ended(node);
    if (node?.fate === "kept") continue;
    if (!steps[t]) return [`It was in the beam when the search ended, after step ${t}.`, pathOf(before)];
    const isEnd = token === END_OF_SENTENCE; // it must be among the first
    const stayed = steps[t].filter(({ fate }, rank) => (isEnd ? rank < size : fate !== "pruned"));
    const [reached, last] = [node?.log_prob ?? total, stayed.at(-1).log_prob];
    return [
      `It fell out of the beam at step ${t + 1}, with ${isEnd ? "its end" : `“${visible(token)}”`}: `
        + `${signed(reached)} nats until there, ${(last - reached).toFixed(2)} less than the last one `
        + `that stayed (${signed(last)}).`,
      pathOf(node ?? before),
    ];
  }
  return ["It is in the beam.", pathOf(node)];
}

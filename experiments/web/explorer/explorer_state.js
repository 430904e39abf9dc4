"use strict";
// The page's data, what of it is chosen, and the choice as the page's address.

const data = JSON.parse(byId("data").textContent);
let examples = data.examples.map(decodeExample);
let foreign = []; // names in the address that are those of the page around
const VIEWS = { matrix: "Matrix", lines: "Lines", heads: "All heads" };
const VALUES = { weights: "weights", norms: "weights × norms" };
// In the address these count from one.
const COUNTED = ["example", "frame", "layer", "head", "row"];
const NAMED = {
  kind: Object.keys(data.kinds),
  view: Object.keys(VIEWS),
  values: Object.keys(VALUES),
  scale: ["fixed", "stretched"],
  end: ["shown", "hidden"],
  tokens: ["pieces", "words"],
};

function decodeExample(example) {
  return {
    ...example,
    frames: example.frames.map((frame) => ({
      label: frame.label,
      weights: decodeAll(frame.weights),
      norms: decodeAll(frame.norms),
    })),
  };
}

function decodeAll(arrays) {
  const decoded = Object.entries(arrays).map(([kind, array]) => [kind, decodeFloats(array)]);
  return Object.fromEntries(decoded);
}

/** The first choice: counts from zero; `frame` null for the last, `row` null for none. */
function firstChoice() {
  return {
    example: 0, frame: null, kind: data.open.kind, layer: data.open.layer - 1,
    head: data.open.head - 1, view: data.open.view, row: null, values: "weights", scale: "fixed",
    end: data.open.end, tokens: "pieces",
  };
}

/** The kinds of attention that an example has. */
function kindsOf(example) {
  return Object.keys(data.kinds).filter((kind) => kind in example.frames[0].weights);
}

/** How many there are of each thing that is counted, once those before it are chosen. */
function counts(choice) {
  const example = examples[choice.example];
  const [layers, heads] = example.frames[0].weights[choice.kind].shape;
  const any = { ...choice, frame: 0, layer: 0, head: 0 };
  const matrix = headMatrix(example, data.kinds[choice.kind], any);
  return {
    example: examples.length, frame: example.frames.length, layer: layers, head: heads,
    row: matrix.rows.length,
  };
}

/** The choice with every part that does not exist replaced by one that does. */
function existing(choice) {
  const found = { ...choice };
  found.example = Math.min(found.example, examples.length - 1);
  const example = examples[found.example];
  const kinds = kindsOf(example);
  if (!kinds.includes(found.kind)) found.kind = kinds.at(-1);
  if (!(found.kind in example.frames[0].norms)) found.values = "weights";
  const most = counts(found);
  for (const name of ["frame", "layer", "head"]) {
    found[name] = Math.min(found[name] ?? Infinity, most[name] - 1);
  }
  if (found.row >= most.row) found.row = null;
  return found;
}

/** The choice as the part of the address after `#`. */
function toAddress(choice) {
  const all = [...new URLSearchParams(location.hash.slice(1))];
  const parts = new URLSearchParams(all.filter(([name]) => foreign.includes(name)));
  for (const [name, value] of Object.entries(choice)) {
    if (value !== null) parts.set(name, COUNTED.includes(name) ? value + 1 : value);
  }
  return parts.toString();
}

/** Reads an address: [choice, sentences on its parts that do not exist]. */
function fromAddress(address) {
  const asked = firstChoice();
  const strange = [];
  for (const [name, text] of new URLSearchParams(address)) {
    if (foreign.includes(name)) continue;
    if (COUNTED.includes(name) && /^[1-9]\d{0,5}$/.test(text)) asked[name] = Number(text) - 1;
    else if (NAMED[name]?.includes(text)) asked[name] = text;
    else strange.push(`The address says ${name}=${text}, which is nothing that this page knows.`);
  }
  const choice = existing(asked);
  const offered = { kind: kindsOf(examples[choice.example]), values: ["weights"] };
  for (const [name, names] of Object.entries(offered)) {
    if (asked[name] !== choice[name]) {
      strange.push(`There is no ${name} ${asked[name]} here: choose from ${names.join(", ")}.`);
    }
  }
  const most = counts(choice);
  for (const name of COUNTED) {
    if (asked[name] !== null && asked[name] !== choice[name]) {
      strange.push(`There is no ${name} ${asked[name] + 1} here: choose from 1 to ${most[name]}.`);
    }
  }
  return [choice, strange];
}

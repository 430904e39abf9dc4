"use strict";
// What the reader does: controls, keys, pointers; and what the page then shows.

let choice;
let marked = () => {}; // shows a row in the picture
const largestOf = new Map();

function matrixOf(changes) {
  const all = { ...choice, ...changes };
  return headMatrix(examples[all.example], data.kinds[all.kind], all);
}

/** The end of the scale: 1, or the largest number of the head, or of all, over its checkpoints. */
function largest() {
  if (choice.values === "weights" && choice.scale === "fixed") return 1;
  const { example, kind, values, end, tokens, layer, head } = choice;
  const all = choice.view === "heads";
  const key = [example, kind, values, end, tokens, ...(all ? [] : [layer, head])].join();
  if (!largestOf.has(key)) {
    const most = counts(choice);
    const range = (count) => Array.from({ length: count }, (_, i) => i);
    const found = range(most.frame).flatMap((frame) =>
      (all ? range(most.layer) : [layer]).flatMap((layer) =>
        (all ? range(most.head) : [head]).flatMap((head) =>
          matrixOf({ frame, layer, head }).rows.map((row) => Math.max(...row)),
        ),
      ),
    );
    largestOf.set(key, found.reduce((one, other) => Math.max(one, other)) || 1);
  }
  return largestOf.get(key);
}

/** Changes parts of the choice, by name. */
function choose(changes) {
  const before = choice;
  choice = existing({ ...choice, ...changes });
  const others = ["example", "kind", "tokens"].some((name) => choice[name] !== before[name]);
  if (others) choice.row = null;
  show();
  try {
    history.replaceState(null, "", `#${toAddress(choice)}`);
  } catch {
    // A page within another one's text has no address; Safari takes 100 in 30 seconds.
  }
}

// -- the page

function show() {
  const place = byId("chart");
  const focused = [...place.querySelectorAll("button.name")].indexOf(document.activeElement);
  const scrolled = place.firstElementChild;
  const [top, left] = [scrolled?.scrollTop, scrolled?.scrollLeft];
  const kind = data.kinds[choice.kind];
  const { layer, head } = counts(choice);
  const [matrix, most, colours] = [matrixOf({}), largest(), palette()];
  showControls();
  writeMeaning(byId("meaning"), choice, kind, matrix, [layer, head]);
  place.replaceChildren();
  if (choice.view === "heads") {
    const open = (layer, head) => choose({ layer, head, view: "matrix" });
    const one = (layer, head) => matrixOf({ layer, head });
    drawHeads(place, [layer, head], choice, one, most, colours, open);
    marked = () => {};
  } else {
    const draw = choice.view === "lines" ? drawLines : drawMatrix;
    const picture = draw(place, matrix, most, colours, kind, {
      point: (row) => showRow(matrix, row ?? choice.row),
      choose: (row) => choose({ row: row === choice.row ? null : row }),
      focus: (row) => {
        showRow(matrix, row ?? choice.row);
        byId("said").textContent = rowSentence(matrix, { ...choice, row: row ?? choice.row });
      },
      tell,
    });
    marked = (row) => picture.mark(row, choice.row);
  }
  place.firstElementChild.scrollTo(left ?? 0, top ?? 0);
  byId("scale-end").textContent = most === 1 ? "1" : digits(most);
  byId("scale").querySelector("i").style.background =
    `linear-gradient(to right, ${colours.map((colour) => `rgb(${colour.map(Math.round)})`)})`;
  showRow(matrix, choice.row);
  byId("said").textContent = rowSentence(matrix, choice);
  if (focused >= 0) place.querySelectorAll("button.name")[choice.row ?? focused]?.focus();
}

function showRow(matrix, row) {
  marked(row);
  const ofSource = data.kinds[choice.kind].keys === "source";
  showPicture(ofSource ? examples[choice.example].picture : null, matrix, row);
  writeRow(matrix, row, choice, largest(), VALUES[choice.values]);
}

/** Shows a line next to the pointer. */
function tell(event, text) {
  const tip = byId("tip");
  tip.hidden = text === null;
  if (text === null) return;
  tip.textContent = text;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 4;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, room))}px`;
  tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 12)}px`;
}

function showNotes(strange) {
  const notes = [...data.notes, ...strange];
  byId("notes").replaceChildren(...notes.map((text) => element("p", {}, text)));
}

// -- controls

/** Fills a fieldset with radio buttons: [[value, label], ...]. */
function fill(name, options, pick) {
  const place = byId(name);
  if (place.dataset.options !== JSON.stringify(options)) {
    place.dataset.options = JSON.stringify(options);
    place.replaceChildren(
      place.querySelector("legend"),
      ...options.map(([value, label]) =>
        element(
          "label", { class: "choice" },
          element("input", { type: "radio", name, value, on: { change: () => pick(value) } }),
          element("span", {}, label),
        ),
      ),
    );
  }
  for (const input of place.querySelectorAll("input")) {
    input.checked = input.value === String(choice[name]);
  }
}

function showControls() {
  const example = examples[choice.example];
  const { layer, head } = counts(choice);
  const numbers = (count) => Array.from({ length: count }, (_, i) => [i, `${i + 1}`]);
  const short = (kind) => data.kinds[kind].title.replace("-attention", "");
  fill("kind", kindsOf(example).map((kind) => [kind, short(kind)]), (kind) => choose({ kind }));
  fill("view", Object.entries(VIEWS), (view) => choose({ view }));
  fill("layer", numbers(layer), (layer) => choose({ layer }));
  fill("head", numbers(head), (head) => choose({ head }));
  fill("values", Object.entries(VALUES), (values) => choose({ values }));
  byId("values").hidden = !(choice.kind in example.frames[0].norms);
  byId("stretched").checked = choice.scale === "stretched" || choice.values === "norms";
  byId("stretched").disabled = choice.values === "norms";
  byId("end").checked = choice.end === "hidden";
  byId("end").disabled = !canHideEnd(example, data.kinds[choice.kind]);
  byId("end").parentElement.hidden = example.source.at(-1) !== END_OF_SENTENCE;
  byId("tokens").checked = choice.tokens === "words";
  byId("tokens").parentElement.hidden = Boolean(example.picture); // patches join to no words
  byId("more").hidden = byId("tokens").parentElement.hidden && byId("end").parentElement.hidden;
  byId("example").value = choice.example;
  byId("title").textContent = example.title;
  byId("title").title = example.title;
  byId("translation").textContent = byId("translation").title = example.translation;
  const several = example.frames.length > 1;
  byId("steps").hidden = !several;
  byId("frame").max = example.frames.length - 1;
  byId("frame").value = choice.frame;
  byId("step").textContent = example.frames[choice.frame].label;
  byId("frame").setAttribute("aria-valuetext", example.frames[choice.frame].label);
  byId("checkpoint").textContent = several ? "" : example.frames[0].label;
}

function listen() {
  byId("example").append(
    ...examples.map((example, i) => element("option", { value: i, dir: "auto" }, example.title)),
  );
  byId("examples").hidden = examples.length < 2;
  byId("example").addEventListener("change", (event) => {
    choose({ example: Number(event.target.value), frame: null });
  });
  const onCheck = (id, name, [off, on]) =>
    byId(id).addEventListener("change", ({ target }) =>
      choose({ [name]: target.checked ? on : off }),
    );
  onCheck("stretched", "scale", NAMED.scale);
  onCheck("end", "end", NAMED.end);
  onCheck("tokens", "tokens", NAMED.tokens);
  byId("frame").addEventListener("input", ({ target }) => choose({ frame: Number(target.value) }));
  document.addEventListener("keydown", steer);
  window.addEventListener("hashchange", () => examples.length && readAddress());
  let width = 0;
  new ResizeObserver(([{ contentRect }]) => {
    if (contentRect.width !== width && width && choice) show();
    width = contentRect.width;
  }).observe(byId("controls"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    if (choice) show();
  });
}

function readAddress() {
  let strange;
  [choice, strange] = fromAddress(location.hash.slice(1));
  showNotes(strange);
  show();
}

/** Arrows move through heads and layers; on a row's name, up and down move through rows. */
function steer(event) {
  const { target, key } = event;
  if (!byId("chart").getClientRects().length) return; // a page may hide it
  const ownArrows = target.matches(
    'textarea, input[type="range"], select, [type="radio"]:not([name="layer"]):not([name="head"])',
  );
  const onRow = target.matches("button.name");
  if (key === "Escape") {
    if (onRow) target.blur();
    choose({ row: null });
  }
  // What scrolls by itself, and the text below, keep theirs too.
  if (ownArrows || target.closest(".list, details")) return;
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[key];
  if (!by) return;
  const upright = key === "ArrowUp" || key === "ArrowDown";
  const name = upright ? (onRow ? "row" : "layer") : "head";
  const next = (choice[name] ?? (by > 0 ? -1 : 0)) + by;
  const moves = next >= 0 && next < counts(choice)[name];
  // At an end, radio buttons would go round to the other one.
  if (moves || target.type === "radio") event.preventDefault();
  if (!moves) return;
  choose({ [name]: next });
  if (target.type === "radio") byId(target.name).querySelector(":checked").focus();
}

// -- the console

/** A request in the console, counted from one, as a choice. */
function asked(changes = {}) {
  const found = { ...choice, ...changes };
  for (const name of COUNTED) if (name in changes) found[name] -= 1;
  return found;
}

window.explorer = Object.freeze({
  state: () => Object.fromEntries(new URLSearchParams(toAddress(choice))),
  matrix: (changes) => matrixOf(asked(changes)),
  row: (changes) => {
    const { queries, keys, after, rows } = matrixOf(asked(changes));
    const row = asked(changes).row ?? 0;
    const weights = rows[row];
    return { token: queries[row], after: after && after[row], keys, weights, sum: sum(weights) };
  },
  /** Shows another sentence in place of all, in the view that is chosen. */
  open: ({ notes, ...example }) => {
    examples = [decodeExample(example)];
    data.notes = notes;
    data.open.kind ||= kindsOf(examples[0]).at(-1);
    largestOf.clear();
    if (!choice) {
      readAddress();
      return;
    }
    showNotes([]);
    choose({ example: 0, frame: null, row: null });
  },
});

listen();
if (examples.length) readAddress();

"use strict";

const { shades, encodings } = JSON.parse(document.getElementById("phasors").textContent);
const byId = (id) => document.getElementById(id);
const picture = byId("picture");
const still = matchMedia("(prefers-reduced-motion: reduce)");

// Units of the picture: a column of cells, the left margin, and where things stand from the top.
const CELL = 40, LEFT = 78, RADIUS = 31, HUB = 38;
const TIES = 72, STRIP = 108, STRIP_HEIGHT = 30, ROWS = 146, ROW = 6;
const MILLISECONDS = 250; // a position

for (const encoding of encodings) {
  const bytes = Uint8Array.from(atob(encoding.table.float32), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  [encoding.length, encoding.width] = encoding.table.shape;
  encoding.value = (row, column) => view.getFloat32(4 * (row * encoding.width + column), true);
}

let encoding = encodings[0];
let position = 0;
let chosen = -1; // number of a hand; -1 for all
let timer = 0;
let parts; // what moves

function add(parent, name, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.textContent = text;
  parent.append(element);
  return element;
}

function set(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
}

function shade(value) {
  const index = Math.round(((value + 1) / 2) * (shades.length - 1));
  return shades[Math.min(Math.max(index, 0), shades.length - 1)];
}

const hubOf = (number) => LEFT + CELL * (2 * number + 1);
const leftOf = (column) => LEFT + CELL * column;

function build() {
  const bottom = ROWS + ROW * encoding.length;
  const width = CELL * encoding.width;
  picture.replaceChildren();
  picture.setAttribute("viewBox", `0 0 ${LEFT + width + 4} ${bottom + 60}`);
  parts = { hands: encoding.hands.map(buildHand), rows: [], strip: [], marks: [] };
  for (let column = 0; column < encoding.width; column++) {
    const box = { x: leftOf(column), y: STRIP, width: CELL, height: STRIP_HEIGHT };
    parts.strip.push(add(picture, "rect", box));
    const middle = { x: leftOf(column) + CELL / 2, y: bottom + 22, "text-anchor": "middle" };
    add(picture, "text", middle, column);
  }
  for (let row = 0; row < encoding.length; row++) buildRow(row);
  const frame = { class: "frame", x: LEFT, y: ROWS, width, height: ROW * encoding.length };
  add(picture, "rect", frame);
  for (const column of encoding.hands.flat()) {
    const box = { x: leftOf(column), y: STRIP, width: CELL, height: bottom - STRIP };
    parts.marks[column] = add(picture, "rect", { class: "mark", ...box });
  }
  const ends = { "text-anchor": "end", x: LEFT - 6 };
  add(picture, "text", { ...ends, y: STRIP + 22 }, "pe(p)");
  parts.label = add(picture, "text", ends);
  const middle = { x: LEFT + width / 2, y: bottom + 50, "text-anchor": "middle" };
  add(picture, "text", middle, "dimension, from 0");
}

function buildHand([sine, cosine], number) {
  const group = add(picture, "g", { class: "hand" });
  const [x, y] = [hubOf(number), HUB];
  for (const column of [sine, cosine]) {
    const ends = { x1: x, y1: TIES, x2: leftOf(column) + CELL / 2, y2: STRIP };
    add(group, "line", { class: "tie", ...ends });
  }
  add(group, "circle", { class: "circle", cx: x, cy: y, r: RADIUS, "pointer-events": "all" });
  group.addEventListener("click", () => choose(chosen === number ? -1 : number));
  const pointer = add(group, "line", { class: "pointer", x1: x, y1: y });
  return { group, pointer, point: add(group, "circle", { class: "point", r: 6 }) };
}

function buildRow(row) {
  const group = add(picture, "g", {});
  for (let column = 0; column < encoding.width; column++) {
    const box = { x: leftOf(column), y: ROWS + ROW * row, width: CELL, height: ROW };
    add(group, "rect", { ...box, fill: shade(encoding.value(row, column)) });
  }
  parts.rows.push(group);
}

function show() {
  encoding.hands.forEach(([sine, cosine], number) => {
    const { group, pointer, point } = parts.hands[number];
    const x = hubOf(number) + RADIUS * encoding.value(position, cosine);
    const y = HUB - RADIUS * encoding.value(position, sine);
    set(pointer, { x2: x, y2: y });
    set(point, { cx: x, cy: y });
    group.classList.toggle("unchosen", chosen >= 0 && chosen !== number);
    for (const column of [sine, cosine]) {
      parts.marks[column].style.display = chosen === number ? "" : "none";
    }
  });
  parts.strip.forEach((cell, column) => {
    cell.setAttribute("fill", shade(encoding.value(position, column)));
  });
  parts.rows.forEach((row, number) => {
    row.style.display = number <= position ? "" : "none";
  });
  parts.label.setAttribute("y", ROWS + ROW * position + 8);
  parts.label.textContent = `${position} ▸`;
  byId("position").value = position;
  byId("position").setAttribute("aria-valuetext", `position ${position}`);
  byId("shown").textContent = position;
  byId("told").textContent = told();
}

function told() {
  if (chosen < 0) {
    return `${encoding.hands.length} hands at position ${position}. Choose one to read its numbers.`;
  }
  const read = (column) => encoding.value(position, column).toFixed(4).replace("-", "−");
  const [sine, cosine] = encoding.hands[chosen];
  return (
    `Hand ${chosen} at position ${position}: its sine, ${read(sine)}, is dimension ${sine}; ` +
    `its cosine, ${read(cosine)}, is dimension ${cosine}.`
  );
}

function choose(number) {
  chosen = number;
  byId("hand").value = number;
  show();
}

function play(on) {
  clearInterval(timer);
  timer = on ? setInterval(step, MILLISECONDS) : 0;
  byId("play").textContent = on ? "Pause" : "Play";
}

function step() {
  position = (position + 1) % encoding.length;
  show();
}

function useEncoding(number) {
  encoding = encodings[number];
  build();
  show();
}

encoding.hands.forEach((_, number) => byId("hand").add(new Option(number, number)));
byId("hand").addEventListener("change", (event) => choose(Number(event.target.value)));
byId("play").addEventListener("click", () => play(!timer));
byId("position").addEventListener("input", (event) => {
  play(false);
  position = Number(event.target.value);
  show();
});
for (const radio of document.getElementsByName("encoding")) {
  radio.addEventListener("change", () => useEncoding(Number(radio.value)));
}
still.addEventListener("change", () => play(false));
byId("scale").style.background = `linear-gradient(to right, ${shades.join(", ")})`;
// A reloaded page may come back with another choice than the first.
useEncoding(Number(document.querySelector("[name=encoding]:checked").value));
choose(-1);
play(!still.matches);

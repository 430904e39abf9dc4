"use strict";
// One head as a matrix: rows are queries, columns keys, and each row ends in its sum.

// Pixels: names need the smallest; and of the window's height, what a picture takes at most.
const [MIN_CELL, MAX_CELL, TALLEST] = [16, 60, 0.85];

/**
 * Draws a head's matrix into an empty element.
 * on: {point(row or null), choose(row), focus(row or null), tell(event, text or null)}.
 * Returns {mark(row, chosen)}, which shows the row pointed at.
 */
function drawMatrix(place, matrix, largest, colours, sides, on) {
  const { queries, keys, rows } = matrix;
  const names = rowButtons(matrix, on);
  const columns = keys.map((token) => nameElement("div", token));
  const canvas = element("canvas", {
    role: "img",
    "aria-label": `${queries.length} rows by ${keys.length} columns; each row is told by its name`,
  });
  const frame = element("div", { class: "frame", hidden: "" });
  const totals = rows.map((row) => element("span", {}, digits(sum(row))));
  const sums = element("div", { class: "sums" }, ...totals);
  const group = { class: "names", role: "group", "aria-label": "rows" };
  const left = element("div", group, ...names.buttons);
  const grid = element(
    "div", { class: "matrix" },
    element("div", { class: "corner" }, `${sides.columns} →`, element("br"), `${sides.rows} ↓`),
    element("div", { class: "keys" }, ...columns),
    element("div", { class: "over-sums" }, "sum"),
    left,
    element("div", { class: "cells" }, canvas, element("div", { class: "rules" }), frame),
    sums,
  );
  place.append(element("div", { class: "scroller" }, grid));
  grid.style.setProperty("--cell", `${MAX_CELL}px`);
  const across = place.clientWidth - left.offsetWidth - sums.offsetWidth - 4;
  const down = TALLEST * window.innerHeight - left.offsetTop - 4;
  const fitting = Math.floor(Math.min(across / keys.length, down / queries.length));
  const cell = Math.min(Math.max(fitting, MIN_CELL), MAX_CELL);
  grid.style.setProperty("--cell", `${cell}px`);
  paint(canvas, rows, largest, colours);
  canvas.style.width = `${cell * keys.length}px`;
  canvas.style.height = `${cell * queries.length}px`;
  watchCells(canvas, matrix, cell, columns, on);
  return {
    mark(row, chosen) {
      names.mark(row, chosen);
      frame.hidden = row === null;
      frame.style.top = `${row * cell - 1}px`;
    },
  };
}

/** Tells of the cell that is pointed at. */
function watchCells(canvas, { queries, keys, rows }, cell, columns, on) {
  const limit = (offset, count) => Math.min(Math.max(Math.floor(offset / cell), 0), count - 1);
  canvas.addEventListener("pointermove", (event) => {
    const row = limit(event.offsetY, queries.length);
    const key = limit(event.offsetX, keys.length);
    columns.forEach((name, i) => name.classList.toggle("now", i === key));
    on.point(row);
    on.tell(event, `${visible(queries[row])} → ${visible(keys[key])}  ${digits(rows[row][key])}`);
  });
  canvas.addEventListener("pointerleave", () => {
    columns.forEach((name) => name.classList.remove("now"));
    on.point(null);
    on.tell(null, null);
  });
  canvas.addEventListener("click", (event) => on.choose(limit(event.offsetY, queries.length)));
}

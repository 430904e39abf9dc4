"use strict";
// One head as lines: queries left, keys right, and a line between two is as thick as its weight.

const THICKEST = 0.5; // of the distance between two names
const FAINTEST = 0.01; // of the scale: what is less has no line unless its row is pointed at
const SVG = "http://www.w3.org/2000/svg";

/** Draws a head's lines into an empty element; see `drawMatrix`. */
function drawLines(place, matrix, largest, colours, sides, on) {
  const { queries, keys, rows } = matrix;
  const names = rowButtons(matrix, on);
  const reads = keys.map((token) => {
    const name = nameElement("span", token);
    const number = element("span", { class: "number" });
    return { name, number, whole: element("div", { class: "reads" }, name, number) };
  });
  const svg = document.createElementNS(SVG, "svg");
  const grid = element(
    "div", { class: "lines" },
    element("div", { class: "above" }, sides.rows),
    element("div"),
    element("div", { class: "above" }, sides.columns),
    element("div", { role: "group", "aria-label": "rows" }, ...names.buttons),
    svg,
    element("div", {}, ...reads.map(({ whole }) => whole)),
  );
  place.append(grid);
  const pitch = names.buttons[0].offsetHeight;
  const height = pitch * Math.max(queries.length, keys.length);
  svg.style.height = `${height}px`;
  svg.setAttribute("viewBox", `0 0 100 ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const line = (row, key, kind) =>
    svg.append(curve(row, key, rows[row][key] / largest, pitch, kind));
  const dark = (colour) => colour[0] + colour[1] + colour[2] < 384;
  return {
    mark(row, chosen) {
      names.mark(row, chosen);
      svg.replaceChildren();
      rows.forEach((weights, i) =>
        weights.forEach((weight, key) => {
          if (i !== row && weight >= FAINTEST * largest) line(i, key, row === null ? "" : "other");
        }),
      );
      rows[row]?.forEach((weight, key) => weight > 0 && line(row, key, "now"));
      reads.forEach(({ name, number }, key) => {
        const colour = row === null ? null : colours[shade(rows[row][key] / largest)];
        name.style.background = colour ? `rgb(${colour.map(Math.round)})` : "";
        name.style.color = colour ? (dark(colour) ? "#fff" : "#000") : "";
        number.textContent = row === null ? "" : digits(rows[row][key]);
      });
    },
  };
}

/** A weight on the scale as a line from a row to a key. */
function curve(row, key, share, pitch, kind) {
  const [from, to] = [(row + 0.5) * pitch, (key + 0.5) * pitch];
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", `M0,${from} C45,${from} 55,${to} 100,${to}`);
  path.setAttribute("stroke-width", Math.max(share * THICKEST * pitch, 0.2));
  if (kind) path.setAttribute("class", kind);
  return path;
}

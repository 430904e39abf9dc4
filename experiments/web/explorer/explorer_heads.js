"use strict";
// All heads of a kind at once: layers down, heads across, each a small matrix to open.

const [MIN_MAP, MAX_MAP] = [28, 190]; // pixels
const [NUMBERS, GAP] = [44, 6]; // pixels: the layers' numbers, and between maps

/**
 * Draws all heads into an empty element.
 * matrixOf(layer, head): the result of `headMatrix`. open(layer, head): called for one clicked.
 */
function drawHeads(place, [layers, heads], now, matrixOf, largest, colours, open) {
  const first = matrixOf(0, 0).rows;
  const shape = Math.min(Math.max(first.length / first[0].length, 0.5), 2); // height to width
  const across = (place.clientWidth - NUMBERS - 2) / heads - GAP;
  const down = ((TALLEST * window.innerHeight - NUMBERS) / layers - GAP) / shape;
  const width = Math.floor(Math.min(Math.max(Math.min(across, down), MIN_MAP), MAX_MAP));
  const numbers = Array.from({ length: heads }, (_, head) => element("div", {}, `${head + 1}`));
  const corner = element("div", {}, "head →", element("br"), "layer ↓");
  const grid = element("div", { class: "heads" }, corner, ...numbers);
  grid.style.gap = `${GAP}px`;
  grid.style.gridTemplateColumns = `${NUMBERS}px repeat(${heads}, max-content)`;
  for (let layer = 0; layer < layers; layer++) {
    grid.append(element("div", {}, `${layer + 1}`));
    for (let head = 0; head < heads; head++) {
      const { rows } = matrixOf(layer, head);
      const canvas = element("canvas", { class: rows[0].length > width ? "smooth" : "" });
      paint(canvas, rows, largest, colours);
      const button = element(
        "button",
        {
          type: "button", "aria-label": `open layer ${layer + 1}, head ${head + 1}`,
          style: `width: ${width}px; height: ${Math.round(width * shape)}px`,
          on: { click: () => open(layer, head) },
        },
        canvas,
      );
      if (layer === now.layer && head === now.head) button.setAttribute("aria-current", "true");
      grid.append(button);
    }
  }
  place.append(element("div", { class: "scroller" }, grid));
}

"use strict";
// All heads of a kind at once: layers down, heads across, each a small matrix to open.

const [SMALLEST_MAP, LARGEST_MAP] = [34, 150]; // pixels

/**
 * Draws all heads into an empty element.
 * matrixOf(layer, head): what `headMatrix` returns. open(layer, head): called for one clicked.
 */
function drawHeads(place, [layers, heads], now, matrixOf, largest, colours, open) {
  const room = (place.clientWidth - 60) / heads - 8;
  const width = Math.floor(Math.min(Math.max(room, SMALLEST_MAP), LARGEST_MAP));
  const numbers = Array.from({ length: heads }, (_, head) => element("div", {}, `${head + 1}`));
  const grid = element("div", { class: "heads" }, element("div", {}, "layer\u00a0\\\u00a0head"), ...numbers);
  grid.style.gridTemplateColumns = `max-content repeat(${heads}, max-content)`;
  for (let layer = 0; layer < layers; layer++) {
    grid.append(element("div", {}, `${layer + 1}`));
    for (let head = 0; head < heads; head++) {
      const { rows } = matrixOf(layer, head);
      const shape = Math.min(Math.max(rows.length / rows[0].length, 0.5), 2);
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

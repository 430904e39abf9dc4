"use strict";
// The picture that a row looks at: each patch is as bright as its weight, the largest fully bright.

const DIMMEST = 0.75; // darkness of a patch without weight

/** Shows a row's weights over the example's picture, if it has one; with row null their mean. */
function showPicture(picture, matrix, row) {
  const place = byId("picture");
  place.hidden = !picture;
  if (!picture) return;
  const whole = row === null ? meanRow(matrix.rows) : matrix.rows[row];
  const weights = whole.slice(1, 1 + picture.grid ** 2); // after the class token
  const most = Math.max(...weights) || 1;
  const patches = weights.map((weight) =>
    element("i", { style: `opacity: ${DIMMEST * (1 - weight / most)}`, title: digits(weight) }),
  );
  const cells = `repeat(${picture.grid}, 1fr)`; // of patches left out for their size, too
  byId("picture-frame").replaceChildren(
    element("img", { src: picture.pixels, alt: "the picture" }),
    element("div", { style: `grid-template: ${cells} / ${cells}` }, ...patches),
  );
  byId("picture-sum").textContent =
    `${digits(sum(weights))} of the weight is on the picture, ${digits(most)} on one patch`;
}

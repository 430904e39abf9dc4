"use strict";
// Elements, names of tokens and colours: what all views are made of.

/** An element with attributes (`on` holds listeners) and children; text stays text. */
function element(tag, { on = {}, style = "", ...attributes } = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (style) made.style.cssText = style; // an attribute is not for pages with a strict policy
  for (const [name, listener] of Object.entries(on)) made.addEventListener(name, listener);
  made.append(...children);
  return made;
}

function byId(name) {
  return document.getElementById(name);
}

/** A token as a name in which every character shows. */
function visible(token) {
  const shown = token.replace(/\s/g, "␣").replace(/(?![\u200c\u200d])\p{C}/gu, (character) =>
    `⟨${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
  return shown || "∅";
}

/** A token's name as nodes, in which the mark that begins a word stands back. */
function nameNodes(token) {
  const name = visible(token);
  if (!name.startsWith(WORD_MARK)) return [name];
  return [element("span", { class: "mark" }, WORD_MARK), name.slice(WORD_MARK.length)];
}

/** An element that is a token's name, whole when pointed at if there is no room for it. */
function nameElement(tag, token, attributes = {}) {
  return element(tag, { class: "name", title: visible(token), ...attributes }, ...nameNodes(token));
}

function tokenMark(token) {
  return element("bdi", { class: "token" }, ...nameNodes(token));
}

function digits(number) {
  return number.toFixed(4);
}

/** The scale from zero to one in 256 steps of [red, green, blue], as the style says. */
function palette() {
  const stops = getComputedStyle(document.documentElement)
    .getPropertyValue("--scale").trim().split(/\s+/)
    .map((text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)));
  return Array.from({ length: 256 }, (_, step) => {
    const at = (step / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((value, i) => value + (at - low) * (stops[low + 1][i] - value));
  });
}

/** Which step of the palette a fraction of the scale has. */
function shade(share) {
  return Math.round(255 * Math.min(Math.max(share, 0), 1));
}

/** Paints a matrix on a canvas, a pixel a cell; the page draws it larger. */
function paint(canvas, rows, largest, colours) {
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  rows.flat().forEach((weight, i) => {
    image.data.set([...colours[shade(weight / largest)], 255], 4 * i);
  });
  context.putImageData(image, 0, 0);
}

/**
 * The names of the rows as buttons, of which one can be reached by Tab and the others by arrows.
 * on: {point(row or null), choose(row), focus(row or null)}.
 */
function rowButtons(matrix, on) {
  const buttons = matrix.queries.map((token, row) =>
    nameElement("button", token, {
      type: "button", tabindex: row ? -1 : 0, "aria-pressed": false,
      "aria-label": `row ${row + 1}: ${visible(token)}`,
      on: {
        click: () => on.choose(row),
        pointerenter: () => on.point(row),
        pointerleave: () => on.point(null),
        focus: () => on.focus(row),
        blur: () => on.focus(null),
      },
    }),
  );
  return {
    buttons,
    mark(row, chosen) {
      buttons.forEach((button, i) => {
        button.classList.toggle("now", i === row);
        button.setAttribute("aria-pressed", i === chosen);
        button.tabIndex = i === (chosen ?? 0) ? 0 : -1;
      });
    },
  };
}

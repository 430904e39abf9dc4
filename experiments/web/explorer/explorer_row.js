"use strict";
// The chosen row in words and numbers: next to the picture, above it, and for screen readers.

const SAID = 3; // keys that are read out

/** Names this picture, its rows and its columns. */
function writeMeaning(place, choice, kind, matrix, [layers, heads]) {
  const where = choice.view === "heads"
    ? `: all ${heads} heads of all ${layers} layers. Click, tap or Enter opens one.`
    : `, layer ${choice.layer + 1} of ${layers}, head ${choice.head + 1} of ${heads}.`;
  place.replaceChildren(element("b", {}, kind.title + where), " ");
  if (matrix.after === null) {
    place.append("A row is a token of the text, and shows which tokens this head reads for it.");
    return;
  }
  const row = choice.row ?? Math.min(1, matrix.after.length - 1);
  const reads = kind.keys === "source" ? "source tokens" : "tokens before it";
  place.append(
    `A row is a token that the decoder writes, and shows which ${reads} this head reads `
      + "while it is written: ",
    tokenMark(matrix.queries[row]), " is written after ", tokenMark(matrix.after[row]), ".",
  );
}

/** Writes a row's keys from the strongest to the weakest; with row null the mean of all rows. */
function writeRow(matrix, row, choice, largest, measure) {
  const weights = row === null ? meanRow(matrix.rows) : matrix.rows[row];
  byId("row-title").replaceChildren(
    ...(row === null
      ? ["All rows, mean"]
      : [`Row ${row + 1} of ${matrix.rows.length} `, tokenMark(matrix.queries[row])]),
  );
  const after =
    row !== null && matrix.after ? ["written after ", tokenMark(matrix.after[row]), " in "] : [];
  byId("row-after").replaceChildren(...after, `layer ${choice.layer + 1}, head ${choice.head + 1}`);
  byId("measure").textContent = measure;
  byId("row-sum").textContent = digits(sum(weights));
  byId("row-keys").replaceChildren(
    ...strongest(weights).map((key) =>
      element(
        "tr", { style: `--share: ${(100 * weights[key]) / largest}%` },
        nameElement("th", matrix.keys[key], { scope: "row" }),
        element("td", {}, digits(weights[key])),
      ),
    ),
  );
}

/** The chosen row as a sentence. */
function rowSentence(matrix, { layer, head, row }) {
  const weights = row === null ? meanRow(matrix.rows) : matrix.rows[row];
  let who = "On average its rows read";
  if (row !== null) {
    const after = matrix.after ? `, written after ${matrix.after[row]},` : "";
    who = `Row ${matrix.queries[row]}${after} reads`;
  }
  const keys = strongest(weights).slice(0, SAID);
  const told = keys.map((key) => `${matrix.keys[key]} ${digits(weights[key])}`);
  return `Layer ${layer + 1}, head ${head + 1}. ${who}: ${told.join(", ")}.`;
}

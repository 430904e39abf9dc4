"use strict";
// The chosen row in words and numbers: beside the picture, above it, and for screen readers.

const SAID = 3; // keys that are read out

/** What a row makes, as the tokens themselves; null names what nobody knows. */
function madeMarks(made) {
  return made.flatMap((token) => [token === null ? "what comes next" : tokenMark(token), " "]);
}

/** Writes which picture this is and what its rows and columns are. */
function writeMeaning(place, example, choice, kind, matrix, [layers, heads]) {
  const where = `${kind.title}, layer ${choice.layer + 1} of ${layers}, head ${choice.head + 1} of ${heads}.`;
  const whole = `${kind.title}: all ${heads} heads of all ${layers} layers. Click, tap or Enter opens one.`;
  place.replaceChildren(element("b", {}, choice.view === "heads" ? whole : where), " ");
  if (matrix.made === null) {
    place.append("A row is a token of the text, and shows which tokens this head reads for it.");
    return;
  }
  const row = choice.row ?? Math.min(1, matrix.made.length - 1);
  const reads = kind.keys === "source" ? "source tokens" : "tokens up to it";
  place.append(
    `A row is a token that the decoder has just read, and shows which ${reads} this head reads `
      + "while the decoder makes the token after it: row ",
    tokenMark(matrix.queries[row]), " makes ", ...madeMarks(matrix.made[row]),
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
  const made = row !== null && matrix.made ? ["makes ", ...madeMarks(matrix.made[row]), "in "] : [];
  byId("row-made").replaceChildren(...made, `layer ${choice.layer + 1}, head ${choice.head + 1}`);
  byId("measure").textContent = measure;
  byId("row-sum").textContent = digits(sum(weights));
  byId("row-keys").replaceChildren(
    ...strongest(weights).map((key) =>
      element(
        "tr", { style: `--share: ${(100 * weights[key]) / largest}%` },
        element("th", { scope: "row", class: "name", title: visible(matrix.keys[key]) }, ...nameNodes(matrix.keys[key])),
        element("td", {}, digits(weights[key])),
      ),
    ),
  );
}

/** The chosen row as a sentence. */
function rowSentence(matrix, choice) {
  const weights = choice.row === null ? meanRow(matrix.rows) : matrix.rows[choice.row];
  const made = choice.row !== null && matrix.made
    ? `, which makes ${matrix.made[choice.row].map((token) => token ?? "what comes next").join(" ")},`
    : "";
  const who = choice.row === null ? "On average its rows read" : `Row ${matrix.queries[choice.row]}${made} reads`;
  const keys = strongest(weights).slice(0, SAID).map((key) => `${matrix.keys[key]} ${digits(weights[key])}`);
  return `Layer ${choice.layer + 1}, head ${choice.head + 1}. ${who}: ${keys.join(", ")}.`;
}

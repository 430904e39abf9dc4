"use strict";
// The chosen row in words and numbers: beside the picture, above it, and for screen readers.

const SAID = 3; // keys that are read out

/** What a row makes, as the tokens themselves; null names what nobody knows. */
function madeMarks(made) {
  return made.flatMap((token) => [token === null ? "what comes next" : tokenMark(token), " "]);
}

/** Writes which picture this is and what its rows and columns are. */
function writeMeaning(place, choice, kind, matrix, [layers, heads]) {
  const where = choice.view === "heads"
    ? `: all ${heads} heads of all ${layers} layers. Click, tap or Enter opens one.`
    : `, layer ${choice.layer + 1} of ${layers}, head ${choice.head + 1} of ${heads}.`;
  place.replaceChildren(element("b", {}, kind.title + where), " ");
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
    const made = matrix.made?.[row].map((token) => token ?? "what comes next").join(" ");
    who = `Row ${matrix.queries[row]}${made ? `, which makes ${made},` : ""} reads`;
  }
  const keys = strongest(weights).slice(0, SAID);
  const told = keys.map((key) => `${matrix.keys[key]} ${digits(weights[key])}`);
  return `Layer ${layer + 1}, head ${head + 1}. ${who}: ${told.join(", ")}.`;
}

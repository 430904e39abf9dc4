/* A click on a title sorts by its column: numbers from the highest, names from A, a second time
   the other way. Cells without a number, and means that lost seeds make too good, stay below. */
document.querySelectorAll("th button").forEach((button) => {
  const column = button.parentElement.cellIndex;
  const key = (row) => {
    const cell = row.cells[column], text = cell.textContent;
    if (text === "-" || text === "nan" || (!cell.className && text.startsWith("("))) return "";
    if (text === "baseline") return 0;
    const number = cell.className ? text : text.split(" ")[0].replace(/[,<]/g, "");
    return isNaN(number) ? text : Number(number);
  };
  button.addEventListener("click", () => {
    const head = button.parentElement, body = head.closest("table").tBodies[0];
    const rows = [...body.rows];
    const numeric = rows.every((row) => key(row) === "" || typeof key(row) === "number");
    const before = head.getAttribute("aria-sort");
    const down = before ? before === "ascending" : numeric;
    const compare = (a, b) => (numeric ? a - b : String(a).localeCompare(String(b)));
    rows.sort((a, b) => (key(a) === "") - (key(b) === "")
      || (down ? -1 : 1) * compare(key(a), key(b)));
    head.parentElement.querySelectorAll("th").forEach((th) => th.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...rows);
  });
});

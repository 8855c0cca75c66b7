"use strict";
// Sorting and folding of tables. Without this script every row is there, in the report's order.

function value(row, column) {
  const cell = row.cells[column];
  const raw = cell.dataset.v;
  return raw === undefined ? cell.textContent.trim() : Number(raw);
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === typeof b) return a.localeCompare(b, "en", { numeric: true });
  return typeof a === "number" ? 1 : -1; // what is not known comes first, below any number
}

function sort(table, original, column, direction) {
  const rows = [...original];
  if (direction !== "none") {
    const sign = direction === "ascending" ? 1 : -1;
    rows.sort((a, b) => sign * compare(value(a, column), value(b, column)));
  }
  table.tBodies[0].append(...rows);
  [...table.tHead.rows[0].cells].forEach((head, index) => {
    head.setAttribute("aria-sort", index === column ? direction : "none");
  });
}

function makeSortable(table) {
  const original = [...table.tBodies[0].rows];
  if (original.length < 2) return;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-label", `sort by ${head.textContent}`);
    // The name stays outside: browsers do not print a button again in a head that is repeated.
    // The word joiner keeps the arrow on the line of the name's last word.
    head.append("\u2060", button);
    head.setAttribute("aria-sort", "none");
    const order = head.classList.contains("n")
      ? ["descending", "ascending", "none"]
      : ["ascending", "descending", "none"];
    head.addEventListener("click", () => {
      const next = (order.indexOf(head.getAttribute("aria-sort")) + 1) % order.length;
      sort(table, original, column, order[next]);
    });
  });
}

function makeFoldable(table) {
  const rows = [...table.tBodies[0].rows];
  const depth = (row) => Number(row.dataset.depth);
  const parents = rows.filter((row, place) => rows[place + 1] && depth(rows[place + 1]) > depth(row));
  const closed = new Set(rows.length > 40 ? parents.filter((row) => depth(row) >= 2) : []);

  function show() {
    let hiddenBelow = Infinity;
    for (const row of rows) {
      if (depth(row) <= hiddenBelow) hiddenBelow = closed.has(row) ? depth(row) : Infinity;
      row.hidden = depth(row) > hiddenBelow;
    }
  }

  for (const row of parents) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "fold";
    const label = row.querySelector(".label");
    button.setAttribute("aria-label", `rows below ${label.textContent}`);
    button.setAttribute("aria-expanded", String(!closed.has(row)));
    label.prepend(button);
    button.addEventListener("click", () => {
      if (!closed.delete(row)) closed.add(row);
      button.setAttribute("aria-expanded", String(!closed.has(row)));
      show();
    });
  }
  show();
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelectorAll("table.tree").forEach(makeFoldable);

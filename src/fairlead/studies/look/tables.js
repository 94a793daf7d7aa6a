// Tables of the class "list": sorted by a click on a heading, columns hidden, downloaded as CSV.
"use strict";

const tableState = new Map(); // where a table is -> its order and its hidden columns, which survive a live update
const UNIT_S = { ms: 0.001, s: 1, min: 60, m: 60, h: 3600, d: 86400 };

function prepareTables(root) {
  for (const table of root.querySelectorAll("table.list")) {
    if (table.dataset.tools || !table.tHead || table.tHead.rows.length !== 1) continue;
    table.dataset.tools = "yes";
    const state = stateOf(table);
    addHeadings(table, state);
    addTools(table, state);
    applyOrder(table, state);
    applyHidden(table, state);
  }
}

function stateOf(table) {
  const part = table.closest("[id]");
  const place = `${part?.id} ${[...(part ?? document).querySelectorAll("table.list")].indexOf(table)}`;
  if (!tableState.has(place)) tableState.set(place, { column: null, down: false, hidden: new Set() });
  return tableState.get(place);
}

const headings = (table) => [...table.tHead.rows[0].cells];
const hasSpans = (table) => [...table.rows].some((row) => [...row.cells].some((cell) => cell.rowSpan > 1));
const plain = (cell) => cell.dataset.name ?? cell.textContent.replace(/\s+/g, " ").trim(); // of a heading: with its unit

function addHeadings(table, state) {
  if (hasSpans(table) || table.tBodies.length !== 1) return;
  headings(table).forEach((cell, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => {
      state.down = state.column === column && !state.down;
      state.column = column;
      applyOrder(table, state);
    });
  });
}

function applyOrder(table, state) {
  headings(table).forEach((cell, column) => {
    if (column === state.column) cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  });
  if (state.column === null) return;
  const rows = [...table.tBodies[0].rows].map((row) => [value(row.cells[state.column]), row]);
  rows.sort(([a], [b]) => compare(a, b, state.down));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

// Empty cells are last in both directions.
function compare(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
  return down ? -order : order;
}

function value(cell) {
  const given = cell?.dataset.value ?? cell?.querySelector("time")?.dateTime;
  if (given !== undefined) return given === "null" || given === "" ? null : Number.isNaN(Number(given)) ? given : Number(given);
  const text = (cell ? plain(cell) : "").replace(/(?<=\d),(?=\d{3})/g, "");
  if (text === "" || text === "-") return null;
  const parts = /^[-+]?\d[\d.]* ?(ms|min|[smhd])\b/.test(text) ? [...text.matchAll(/(\d[\d.]*) ?(ms|min|[smhd])\b/g)] : [];
  if (parts.length) return parts.reduce((sum, [, number, unit]) => sum + Number(number) * UNIT_S[unit], 0); // such as 2h 23m
  const number = Number.parseFloat(text);
  return /^[-+]?[\d.]+(e[-+]?\d+)?(?![\w.])/i.test(text) && !Number.isNaN(number) ? number : text;
}

function addTools(table, state) {
  const name = nameOf(table);
  const tools = document.createElement("div");
  tools.className = "tools";
  const menu = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "Columns";
  summary.setAttribute("aria-label", `Columns of ${name}`);
  menu.append(summary);
  headings(table).forEach((cell, column) => {
    if (column === 0) return; // which says what a row is about
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = !state.hidden.has(column);
    box.addEventListener("change", () => {
      state.hidden[box.checked ? "delete" : "add"](column);
      applyHidden(table, state);
    });
    label.append(box, ` ${plain(cell)}`);
    menu.append(label);
  });
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain";
  button.textContent = "CSV";
  button.setAttribute("aria-label", `Download ${name} as CSV`);
  button.addEventListener("click", () => save(`${fileName(name)}.csv`, "text/csv;charset=utf-8", csvOf(table)));
  tools.append(...(hasSpans(table) ? [button] : [menu, button])); // a column is not a place in a row where cells span rows
  const framed = table.closest(".scroll") ?? table;
  if (!table.classList.contains("fit")) return void framed.before(tools);
  const sized = document.createElement("div"); // as wide as the table, so that the tools are not far from it
  sized.className = "sized";
  framed.before(sized);
  sized.append(tools, framed);
}

function applyHidden(table, state) {
  for (const row of table.rows) [...row.cells].forEach((cell, column) => cell.classList.toggle("off", state.hidden.has(column)));
}

function nameOf(table) {
  const labelled = table.closest("[aria-label]");
  return table.dataset.name ?? table.caption?.textContent ?? labelled?.getAttribute("aria-label") ?? "table";
}

const fileName = (name) => name.toLowerCase().replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "") || "fairlead";

function csvOf(table) {
  return `${cellsOf(table).map((row) => row.map(csvCell).join(",")).join("\r\n")}\r\n`;
}

// The texts of all rows; what spans several rows or columns is in each of the rows, and in the first of the columns.
function cellsOf(table) {
  const rows = [...table.rows].map(() => []);
  [...table.rows].forEach((row, r) => {
    let column = 0;
    for (const cell of row.cells) {
      while (rows[r][column] !== undefined) column += 1;
      const text = cell.dataset.value ?? cell.querySelector("time")?.dateTime ?? plain(cell);
      for (let down = 0; down < Math.min(cell.rowSpan, rows.length - r); down += 1) {
        for (let right = 0; right < cell.colSpan; right += 1) rows[r + down][column + right] = right ? "" : text;
      }
      column += cell.colSpan;
    }
  });
  return rows;
}

// A spreadsheet would run what begins with one of these.
function csvCell(text) {
  const safe = /^[=+@\t\r]|^-[^\d.]./.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function save(name, kind, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type: kind }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

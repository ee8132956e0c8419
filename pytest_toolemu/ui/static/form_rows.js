// Lists of objects in forms: each object is a row of fields, which people add and remove.

const ONE_POINTER = ["name", "data-problem", "data-rows"];
const IDS = ["id", "for", "aria-describedby"];

/** Change the beginning of pointers and IDs below an element, and in the templates of lists inside it. */
function rename(root, from, to) {
  const change = (text, name) => (text.startsWith(from[name]) ? to[name] + text.slice(from[name].length) : text);
  for (const element of root.querySelectorAll("*")) {
    for (const name of ONE_POINTER) {
      if (element.hasAttribute(name)) element.setAttribute(name, change(element.getAttribute(name), "pointer"));
    }
    for (const name of IDS) {
      const ids = element.getAttribute(name)?.split(" ");
      if (ids) element.setAttribute(name, ids.map((id) => change(id, "id")).join(" "));
    }
    if (element instanceof HTMLTemplateElement) rename(element.content, from, to);
  }
}

const rowsOf = (list) => [...list.querySelectorAll(":scope > .row")];

function renumber(list) {
  rowsOf(list).forEach((row, index) => {
    for (const number of row.querySelectorAll(":scope > legend [data-number], :scope > button [data-number]")) {
      number.textContent = index + 1;
    }
  });
}

/** Add an empty row at the end of a list; returns it. */
export function addRow(list) {
  const template = list.querySelector(":scope > template");
  const added = template.content.cloneNode(true);
  // Indexes of removed rows are not used again, because the server reads the rows in the order of their indexes.
  const index = Number(list.dataset.next);
  list.dataset.next = index + 1;
  const [pointer, id] = [list.dataset.rows, list.id];
  rename(added, { pointer: `${pointer}/-`, id: `${id}/-` }, { pointer: `${pointer}/${index}`, id: `${id}/${index}` });
  template.before(added);
  renumber(list);
  const row = rowsOf(list).at(-1);
  (row.querySelector("input:not([type=hidden]), select, textarea") ?? row).focus();
  return row;
}

/** Remove a row; the focus goes to the next one, or to the button that adds one. */
export function removeRow(row) {
  const list = row.closest("[data-rows]");
  const index = rowsOf(list).indexOf(row);
  row.remove();
  renumber(list);
  (rowsOf(list)[index] ?? list.querySelector(":scope > [data-add-row]")).focus();
}

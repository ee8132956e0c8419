"use strict";
(() => {
  // Numbers sort as numbers and names in natural order; missing values come last in either order.
  const compare = (a, b) => (isNaN(a) || isNaN(b) ? a.localeCompare(b, "en", { numeric: true }) : a - b);
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0],
      heads = [...table.tHead.rows[0].cells];
    const sort = (head, order) => {
      const value = (row) => row.cells[heads.indexOf(head)].dataset.sort;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      body.append(
        ...[...body.rows].sort((one, other) => {
          const [a, b] = [value(one), value(other)];
          if (!a || !b) return Boolean(b) - Boolean(a);
          return order === "ascending" ? compare(a, b) : compare(b, a);
        }),
      );
    };
    heads.forEach((head) =>
      head.querySelector("button").addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        sort(head, before ? (before === "ascending" ? "descending" : "ascending") : head.dataset.first);
      }),
    );
    sort(heads[0], "ascending");
  });
})();

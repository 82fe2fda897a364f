"use strict";

/* A head sorts its column: first the largest or the alphabet's first, then the other way round. */
for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, at) => {
    head.firstElementChild.addEventListener("click", () => {
      const body = table.tBodies[0];
      const rows = [...body.rows];
      const by = (row) => row.cells[at].dataset.by;
      const numeric = rows.every((row) => row.cells[at].classList.contains("n"));
      const first = numeric ? "descending" : "ascending";
      const other = numeric ? "ascending" : "descending";
      const way = head.getAttribute("aria-sort") === first ? other : first;
      const order = numeric ? (a, b) => by(a) - by(b) : (a, b) => by(a).localeCompare(by(b));
      rows.sort((a, b) => (way === "ascending" ? order(a, b) : order(b, a)));
      body.append(...rows);
      for (const one of heads) one.setAttribute("aria-sort", one === head ? way : "none");
    });
  });
}

"use strict";
(() => {
  const AT_FIRST = 100;
  const byId = (id) => document.getElementById(id);
  const rows = [...document.querySelectorAll(".runs tbody tr")];
  const viewer = byId("viewer"), sheets = byId("sheets"), beside = byId("beside");
  const controls = { text: byId("search"), outcome: byId("by-outcome"), agent: byId("by-agent"), slice: byId("by-slice") };
  const more = byId("more"), count = byId("count");
  const link = (row) => row.querySelector("th a");
  const targets = (hash) => /^#r(\d+)(?:\+r(\d+))?(?:-step-\d+)?$/.exec(hash);
  let all = false, matching = rows, opener = null;

  // What is searched: the row, and the transcripts behind it; read when it is first needed.
  const texts = new Map();
  const textOf = (row) => {
    if (!texts.has(row)) {
      const found = link(row) && targets(link(row).hash);
      const behind = found ? found.slice(1).filter(Boolean).map((n) => byId("t" + n).content.textContent) : [];
      texts.set(row, [row.textContent, ...behind].join("\n").toLowerCase());
    }
    return texts.get(row);
  };

  const value = (control) => (control ? control.value : "");
  const filter = () => {
    const words = value(controls.text).toLowerCase().split(/\s+/).filter(Boolean);
    const [outcome, agent, slice] = [controls.outcome, controls.agent, controls.slice].map(value);
    matching = rows.filter((row) =>
      (!outcome || row.dataset.outcome === outcome) && (!agent || row.dataset.agent === agent) &&
      (!slice || row.dataset.slices.includes("|" + slice + "|")) && words.every((word) => textOf(row).includes(word)));
    const shown = new Set(all ? matching : matching.slice(0, AT_FIRST));
    rows.forEach((row) => { row.hidden = !shown.has(row); });
    const total = rows.length.toLocaleString("en");
    count.textContent = matching.length === rows.length ? total + " runs" : matching.length.toLocaleString("en") + " of " + total + " runs";
    more.hidden = shown.size === matching.length;
    more.textContent = "Show all " + matching.length.toLocaleString("en");
  };

  const sheet = (number) => byId("t" + number).content.cloneNode(true).firstElementChild;
  // Beside another, a transcript needs to say whose it is.
  const titled = (number, article) => {
    const side = document.createElement("div"), name = document.createElement("p");
    name.className = "side";
    name.textContent = byId("t" + number).dataset.name;
    side.append(name, article);
    return side;
  };
  const words = (step) => [".arguments", ".returned"].map((part) => step.querySelector(part).textContent);
  const call = (step) => step.querySelector("h4 code").textContent + words(step)[0];

  // The first step at which two transcripts differ, or their answers.
  const parting = (one, other) => {
    const [left, right] = [one, other].map((side) => [...side.querySelectorAll(".step")]);
    for (let i = 0; i < Math.min(left.length, right.length); i++) {
      const agent = call(left[i]) !== call(right[i]);
      if (agent || words(left[i])[1] !== words(right[i])[1]) {
        [left[i], right[i]].forEach((step) => step.classList.add("parts"));
        return "The " + (agent ? "agent" : "world") + " parts at step " + (i + 1) + ".";
      }
    }
    const longer = [...left, ...right].filter((step) => step === left[right.length] || step === right[left.length]);
    longer.forEach((step) => step.classList.add("parts"));
    if (longer.length) return "One goes on where the other ends, at step " + (Math.min(left.length, right.length) + 1) + ".";
    const [a, b] = [one, other].map((side) => side.querySelector(".answer").textContent);
    return a === b ? "Both say and do the same." : "The agent parts at the answer.";
  };

  const others = (number) => {
    const own = byId("t" + number);
    const found = [...document.querySelectorAll("template")].filter((t) => t !== own && t.dataset.case === own.dataset.case)
      .sort((a, b) => a.dataset.name.localeCompare(b.dataset.name));
    beside.replaceChildren(new Option("nothing", ""), ...found.map((t) => new Option(t.dataset.name, t.id.slice(1))));
    byId("beside-label").hidden = !found.length;
  };

  const show = () => {
    const found = targets(location.hash);
    if (!found || !byId("t" + found[1])) { if (viewer.open) viewer.close(); return; }
    const [, first, second] = found;
    const sides = [sheet(first)];
    if (second && byId("t" + second)) sides.push(sheet(second));
    sheets.replaceChildren(...(sides.length > 1 ? sides.map((side, i) => titled(found[i + 1], side)) : sides));
    viewer.classList.toggle("wide", sides.length > 1);
    byId("parting").hidden = sides.length < 2;
    if (sides.length > 1) byId("parting").textContent = parting(sides[0], sides[1]);
    byId("record").firstElementChild.textContent = byId("t" + first).dataset.record;
    others(first);
    beside.value = second || "";
    const at = matching.findIndex((row) => link(row) && targets(link(row).hash)[1] === first);
    byId("position").textContent = at < 0 ? "" : (at + 1).toLocaleString("en") + " / " + matching.length.toLocaleString("en");
    byId("previous").disabled = at <= 0;
    byId("next").disabled = at < 0 || at >= matching.length - 1;
    if (!viewer.open) { opener = document.activeElement; viewer.showModal(); }
    const step = location.hash.includes("-step-") && byId(location.hash.slice(1).replace(/\+r\d+/, ""));
    const jump = step || (sides.length > 1 && sheets.querySelector(".parts"));
    if (step) step.scrollIntoView(); else if (!jump) viewer.scrollTop = 0;
  };

  const move = (by) => {
    if (viewer.open) {
      const first = targets(location.hash)[1];
      const open = matching.filter((row) => link(row));
      const next = open[open.findIndex((row) => targets(link(row).hash)[1] === first) + by];
      if (next) location.replace(link(next).hash);
      return;
    }
    const links = rows.filter((row) => !row.hidden && link(row)).map(link);
    const next = links[links.indexOf(document.activeElement) + by];
    if (next) next.focus();
  };

  // Numbers sort as numbers, names as people read them, and what is missing comes last in either order.
  const compare = (one, other) => (isNaN(one) || isNaN(other)) ? one.localeCompare(other, "en", { numeric: true }) : one - other;
  document.querySelectorAll("table.sortable").forEach((table) => {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
    const sort = (head, order) => {
      const value = (row) => row.cells[heads.indexOf(head)].dataset.sort;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      body.append(...[...body.rows].sort((one, other) => {
        const [a, b] = [value(one), value(other)];
        if (!a || !b) return Boolean(b) - Boolean(a);
        return order === "ascending" ? compare(a, b) : compare(b, a);
      }));
    };
    heads.forEach((head) => head.querySelector("button").addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      sort(head, before ? (before === "ascending" ? "descending" : "ascending") : head.dataset.first);
    }));
    sort(heads[0], "ascending");
  });

  addEventListener("hashchange", show);
  viewer.addEventListener("close", () => {
    if (targets(location.hash)) history.replaceState(null, "", location.pathname + location.search);
    if (opener && opener.isConnected) opener.focus();
  });
  viewer.addEventListener("click", (event) => { if (event.target === viewer) viewer.close(); });
  byId("close").addEventListener("click", () => viewer.close());
  byId("previous").addEventListener("click", () => move(-1));
  byId("next").addEventListener("click", () => move(1));
  beside.addEventListener("change", () => {
    const first = targets(location.hash)[1];
    location.replace("#r" + first + (beside.value ? "+r" + beside.value : ""));
  });
  Object.values(controls).filter(Boolean).forEach((control) => control.addEventListener("input", filter));
  if (more) more.addEventListener("click", () => { all = true; filter(); });
  if (byId("clear")) byId("clear").addEventListener("click", () => {
    Object.values(controls).filter(Boolean).forEach((control) => { control.value = ""; });
    filter();
  });
  document.querySelectorAll("button.cell").forEach((cell) => cell.addEventListener("click", () => {
    controls.agent.value = cell.dataset.agent;
    controls.slice.value = cell.dataset.slice;
    filter();
    byId("runs").scrollIntoView();
  }));
  addEventListener("keydown", (event) => {
    if (event.target === controls.text && /^(Enter|ArrowDown)$/.test(event.key)) { event.preventDefault(); move(1); }
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT)$/.test(event.target.tagName)) return;
    if (event.key === "/" && !viewer.open && controls.text) { event.preventDefault(); controls.text.focus(); }
    if (event.key === "j" || (viewer.open && event.key === "ArrowRight")) move(1);
    if (event.key === "k" || (viewer.open && event.key === "ArrowLeft")) move(-1);
  });
  if (rows.length && more) filter();
  show();
})();

"use strict";
(() => {
  const INITIAL_ROWS = 100;
  const byId = (id) => document.getElementById(id);
  const rows = [...document.querySelectorAll(".runs tbody tr")];
  const viewer = byId("viewer"),
    transcripts = byId("transcripts"),
    comparison = byId("compare");
  const controls = {
    text: byId("search"),
    outcome: byId("by-outcome"),
    agent: byId("by-agent"),
    slice: byId("by-slice"),
  };
  const more = byId("more"),
    count = byId("count");
  const link = (row) => row.querySelector("th a");
  const targets = (hash) => /^#r(\d+)(?:\+r(\d+))?(?:-step-\d+)?$/.exec(hash);
  let all = false,
    matching = rows,
    opener = null;

  // The text that a search covers: the row and its transcripts, read on the first search.
  const texts = new Map();
  const textOf = (row) => {
    if (!texts.has(row)) {
      const match = link(row) && targets(link(row).hash);
      const shownOnClick = match
        ? match
            .slice(1)
            .filter(Boolean)
            .map((n) => byId("t" + n).content.textContent)
        : [];
      texts.set(row, [row.textContent, ...shownOnClick].join("\n").toLowerCase());
    }
    return texts.get(row);
  };

  const value = (control) => (control ? control.value : "");
  const filter = () => {
    const words = value(controls.text).toLowerCase().split(/\s+/).filter(Boolean);
    const [outcome, agent, slice] = [controls.outcome, controls.agent, controls.slice].map(value);
    matching = rows.filter(
      (row) =>
        (!outcome || row.dataset.outcome === outcome) &&
        (!agent || row.dataset.agent === agent) &&
        (!slice || row.dataset.slices.includes("|" + slice + "|")) &&
        words.every((word) => textOf(row).includes(word)),
    );
    const visible = new Set(all ? matching : matching.slice(0, INITIAL_ROWS));
    rows.forEach((row) => {
      row.hidden = !visible.has(row);
    });
    const total = rows.length.toLocaleString("en"),
      noun = rows.length === 1 ? " run" : " runs";
    count.textContent =
      matching.length === rows.length ? total + noun : matching.length.toLocaleString("en") + " of " + total + noun;
    more.hidden = visible.size === matching.length;
    more.textContent = "Show all " + matching.length.toLocaleString("en");
  };

  const transcript = (number) => byId("t" + number).content.cloneNode(true).firstElementChild;
  // When two transcripts are shown, each gets a title.
  const titled = (number, article) => {
    const side = document.createElement("div"),
      name = document.createElement("p");
    name.className = "side";
    name.textContent = byId("t" + number).dataset.name;
    side.append(name, article);
    return side;
  };
  // Compare two runs by their keys, one for each part in order: call1-HASH, result1-HASH, message1-HASH, reply1-HASH, answer1-HASH.
  const PARTS = {
    call: { who: "agent", place: "step #", element: ".step" },
    result: { who: "world", place: "step #", element: ".step" },
    message: { who: "agent", place: "message # to the user", element: ".by-agent" },
    reply: { who: "user", place: "the reply to message #", element: ".by-user" },
    answer: { who: "agent", place: "the answer" },
  };
  const markDivergence = (numbers, articles) => {
    const [first, second] = numbers.map((number) => byId("t" + number).dataset.keys.split(" "));
    const at = first.findIndex((key, index) => key !== second[index]);
    if (at < 0) return "Both runs are the same.";
    const [one, other] = [first, second].map((keys, index) => {
      const [, kind, number] = /^([a-z]+)(\d+)/.exec(keys[at]);
      const { who, place, element } = PARTS[kind];
      const item = element && articles[index].querySelectorAll(element)[number - 1];
      if (item) item.classList.add("divergent");
      return { kind, who, place: place.replace("#", number) };
    });
    if (one.kind === other.kind) return "The " + one.who + " first differs at " + one.place + ".";
    if (one.kind !== "answer" && other.kind !== "answer")
      return "One run continues at " + one.place + ", and the other at " + other.place + ".";
    return "One run continues at " + (one.kind === "answer" ? other : one).place + ", where the other ends.";
  };

  const offerComparisons = (number) => {
    const run = byId("t" + number);
    const sameCase = [...document.querySelectorAll("template")]
      .filter((t) => t !== run && t.dataset.case === run.dataset.case)
      .sort((a, b) => a.dataset.name.localeCompare(b.dataset.name));
    comparison.replaceChildren(
      new Option("nothing", ""),
      ...sameCase.map((t) => new Option(t.dataset.name, t.id.slice(1))),
    );
    byId("compare-label").hidden = !sameCase.length;
  };

  const show = () => {
    const match = targets(location.hash);
    if (!match || !byId("t" + match[1])) {
      if (viewer.open) viewer.close();
      return;
    }
    const [, first, second] = match;
    const articles = [transcript(first)];
    if (second && byId("t" + second)) articles.push(transcript(second));
    transcripts.replaceChildren(
      ...(articles.length > 1 ? articles.map((article, i) => titled(match[i + 1], article)) : articles),
    );
    viewer.classList.toggle("wide", articles.length > 1);
    byId("divergence").hidden = articles.length < 2;
    if (articles.length > 1) byId("divergence").textContent = markDivergence([first, second], articles);
    byId("record").firstElementChild.textContent = byId("t" + first).dataset.record;
    offerComparisons(first);
    comparison.value = second || "";
    const at = matching.findIndex((row) => link(row) && targets(link(row).hash)[1] === first);
    byId("position").textContent =
      at < 0 ? "" : (at + 1).toLocaleString("en") + " / " + matching.length.toLocaleString("en");
    byId("previous").disabled = at <= 0;
    byId("next").disabled = at < 0 || at >= matching.length - 1;
    if (!viewer.open) {
      opener = document.activeElement;
      viewer.showModal();
    }
    const step = location.hash.includes("-step-") && byId(location.hash.slice(1).replace(/\+r\d+/, ""));
    const jump = step || (articles.length > 1 && transcripts.querySelector(".divergent"));
    if (step) step.scrollIntoView();
    else if (!jump) viewer.scrollTop = 0;
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

  addEventListener("hashchange", show);
  viewer.addEventListener("close", () => {
    if (targets(location.hash)) history.replaceState(null, "", location.pathname + location.search);
    if (opener && opener.isConnected) opener.focus();
  });
  viewer.addEventListener("click", (event) => {
    if (event.target === viewer) viewer.close();
  });
  byId("close").addEventListener("click", () => viewer.close());
  byId("previous").addEventListener("click", () => move(-1));
  byId("next").addEventListener("click", () => move(1));
  comparison.addEventListener("change", () => {
    const first = targets(location.hash)[1];
    location.replace("#r" + first + (comparison.value ? "+r" + comparison.value : ""));
  });
  Object.values(controls)
    .filter(Boolean)
    .forEach((control) => control.addEventListener("input", filter));
  if (more)
    more.addEventListener("click", () => {
      all = true;
      filter();
    });
  if (byId("clear"))
    byId("clear").addEventListener("click", () => {
      Object.values(controls)
        .filter(Boolean)
        .forEach((control) => {
          control.value = "";
        });
      filter();
    });
  document.querySelectorAll("button.cell").forEach((cell) =>
    cell.addEventListener("click", () => {
      controls.agent.value = cell.dataset.agent;
      controls.slice.value = cell.dataset.slice;
      filter();
      byId("runs").scrollIntoView();
    }),
  );
  addEventListener("keydown", (event) => {
    if (event.target === controls.text && /^(Enter|ArrowDown)$/.test(event.key)) {
      event.preventDefault();
      move(1);
    }
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT)$/.test(event.target.tagName)) return;
    if (event.key === "/" && !viewer.open && controls.text) {
      event.preventDefault();
      controls.text.focus();
    }
    if (event.key === "j" || (viewer.open && event.key === "ArrowRight")) move(1);
    if (event.key === "k" || (viewer.open && event.key === "ArrowLeft")) move(-1);
  });
  if (rows.length && more) filter();
  show();
})();

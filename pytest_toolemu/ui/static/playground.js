// The playground: forms are sent as JSON, problems are shown at their fields, and a play is kept current by questions.
import { post } from "./post.js";
import { schemaEditor } from "./schema_editor.js";

/* ---- forms */

function bodyOf(form) {
  const body = {};
  for (const name of ["turn", "index"]) if (form.dataset[name]) body[name] = Number(form.dataset[name]);
  if (form.dataset.stepping) body.stepping = form.dataset.stepping === "true";
  for (const element of form.elements) {
    if (!element.name) continue;
    if (element.name === "facts")
      body.facts = [...(body.facts ?? []), ...(element.checked ? [element.value] : [])];
    else if (element.type === "checkbox") body[element.name] = element.checked;
    else if (element.type === "number") body[element.name] = Number(element.value);
    else body[element.name] = element.value;
  }
  return body;
}

function clearProblems(form) {
  for (const element of form.querySelectorAll("[aria-invalid]")) element.removeAttribute("aria-invalid");
  for (const element of form.querySelectorAll(".field-problem, .form-problem, .form-done")) {
    element.textContent = "";
    element.hidden = true;
  }
}

function showProblems(form, { message, problems = {}, lines }) {
  const all = form.querySelector(".form-problem");
  all.textContent = message;
  all.hidden = false;
  for (const [name, text] of Object.entries(problems)) {
    const input = form.querySelector(`[name="${CSS.escape(name)}"]`);
    const place = form.querySelector(`[data-problem="${CSS.escape(name)}"]`);
    if (!place) {
      all.textContent += `\n${name}: ${text}`;
      continue;
    }
    const marked = input?.hidden ? input.nextElementSibling.querySelector("textarea") : input; // that of its editor
    marked?.setAttribute("aria-invalid", "true");
    place.textContent = text;
    place.hidden = false;
  }
  if (lines) showLines(lines);
  form.querySelector("[aria-invalid]")?.focus();
}

/** Send a form; returns the answer, in which `refused` says what to correct. */
async function send(url, form) {
  try {
    return await (await post(url, bodyOf(form))).json();
  } catch (error) {
    return { refused: { message: error.message } };
  }
}

// Forms are sent by this script only, so their buttons wait for it, and for htmx. JSON gets an editor.
function enable(root) {
  for (const control of root.querySelectorAll(":is(button, select)[disabled]"))
    if (control.form?.dataset.action) control.disabled = false;
  for (const field of root.querySelectorAll("textarea[data-schema]:not([hidden])")) {
    const place = document.createElement("div");
    place.className = "schema-editor";
    field.after(place);
    schemaEditor(field, place, JSON.parse(field.dataset.schema), true);
  }
}
document.addEventListener("DOMContentLoaded", () => enable(document));
document.addEventListener("htmx:afterSettle", () => enable(document));

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-action]");
  if (!form) return;
  event.preventDefault();
  clearProblems(form);
  const url = event.submitter?.getAttribute("formaction") ?? form.dataset.action;
  if (form.dataset.turn) hasActed = true;
  const answer = await send(url, form);
  if (answer.refused) {
    hasActed = false;
    showProblems(form, answer.refused);
  } else if (form.dataset.turn) {
    takeTurn(form);
  } else if (form.dataset.stepping && document.querySelector("#turn form[data-turn]")) {
    form.hidden = true; // the form that a person fills stays, so nothing replaces this one
    document.querySelector("#turn h2").focus({ preventScroll: true });
  }
  document.dispatchEvent(new CustomEvent("acted"));
  if (answer.next) location.assign(answer.next);
  const done = form.querySelector(".form-done");
  if (done && answer.message) {
    done.textContent = answer.message;
    done.hidden = false;
  }
});

/* ---- a case that is being written */

const setup = document.getElementById("setup");
const text = document.getElementById("text");

function showLines(lines) {
  const list = document.getElementById("case-problems");
  list.replaceChildren(
    ...lines.map(({ line, column, message }) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Line ${line}, column ${column}`;
      button.addEventListener("click", () => goTo(line, column));
      item.append(button, `: ${message}`);
      return item;
    }),
  );
  if (lines.length) text.setAttribute("aria-invalid", "true");
  else text.removeAttribute("aria-invalid");
}

function goTo(line, column) {
  const lines = text.value.split("\n");
  const at = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + column - 1;
  text.focus();
  text.setSelectionRange(at, at);
}

async function check() {
  const answer = await send(setup.dataset.check, setup);
  if (answer.refused) {
    showLines(answer.refused.lines ?? [{ line: 1, column: 1, message: answer.refused.message }]);
    return;
  }
  showLines([]);
  const names = ["person", ...answer.agents];
  document.getElementById("agent-choices").replaceChildren(...names.map((name) => new Option("", name)));
}

if (setup) {
  let waiting;
  const checkSoon = () => {
    clearTimeout(waiting);
    waiting = setTimeout(check, 400);
  };
  if (text.value !== text.defaultValue) checkSoon(); // written before this script was loaded
  text.addEventListener("input", checkSoon);
  document.getElementById("case_id").addEventListener("input", checkSoon);
}

/* ---- a play */

const play = document.getElementById("play");
let hasActed = false;

/** Disable everything until what comes next is shown. It may be shown already, without this form. */
function takeTurn(form) {
  const controls = form.closest("#turn")?.querySelectorAll("button, input, select, textarea") ?? [];
  for (const control of controls) control.disabled = true;
}

async function contentOf(part) {
  const response = await fetch(`${play.dataset.url}/${part}`);
  const content = await response.text();
  if (!response.ok) throw new Error(content);
  return content;
}

/** Update only what has changed in the log, because a person may be selecting, opening, or writing something there. */
async function refreshLog() {
  const log = document.getElementById("log");
  const content = await contentOf("log");
  Idiomorph.morph(log, content, {
    morphStyle: "innerHTML",
    callbacks: { beforeNodeMorphed: (node) => !(node instanceof Element && node.matches("details.fork[open]")) },
  });
  enable(log);
}

async function refreshTurn() {
  const turn = document.getElementById("turn");
  const content = await contentOf("turn");
  const hadFocus = turn.contains(document.activeElement);
  turn.innerHTML = content;
  htmx.process(turn);
  enable(turn);
  if (hadFocus || hasActed) turn.querySelector("h2")?.focus();
  hasActed = false;
}

const SOON = 100;
const LATER = 1_000;
const WHEN_HIDDEN = 30_000;

if (play) {
  const gone = document.getElementById("gone");
  let delay = SOON;

  /** Wait before the next question; a person who acts, or who returns to the page, shortens that. */
  function pause() {
    return new Promise((resolve) => {
      const timer = setTimeout(done, document.hidden ? WHEN_HIDDEN : delay);
      document.addEventListener("visibilitychange", done);
      document.addEventListener("acted", done);
      function done() {
        clearTimeout(timer);
        document.removeEventListener("visibilitychange", done);
        document.removeEventListener("acted", done);
        resolve();
      }
    });
  }

  // No connection stays open: a browser has six for all pages of the application. A page asks again soon after a
  // change, which others often follow.
  async function follow() {
    let version,
      failures = 0;
    for (;;) {
      try {
        const response = await fetch(`${play.dataset.url}/state`, { cache: "no-store" });
        // Another application knows neither this play nor this browser.
        if (response.status >= 400 && response.status < 500) {
          gone.hidden = false;
          return;
        }
        const state = JSON.parse(await response.text());
        await show(state);
        gone.hidden = true;
        failures = 0;
        delay = state.version === version ? Math.min(2 * delay, LATER) : SOON;
        // The status may be newer than the version, so the last one is asked for twice.
        if (state.status !== "running" && state.version === version) return;
        version = state.version;
      } catch {
        delay = LATER;
        gone.hidden = ++failures < 2; // a request also fails when the page is being left
      }
      await pause();
    }
  }
  document.addEventListener("acted", () => {
    delay = SOON;
  });
  follow();

  async function show(state) {
    // A part may be newer than the state because of which it was requested; what a person writes there must stay.
    const isOld = (part) => Number(document.querySelector(`#${part} [data-version]`).dataset.version) < state.version;
    if (isOld("log")) await refreshLog();
    if (!isOld("turn") || document.querySelector("#turn [data-state]").dataset.state === state.state) return;
    await refreshTurn();
    document.getElementById("status").textContent = document.querySelector("#turn h2").textContent;
  }
}

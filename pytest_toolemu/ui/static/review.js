// The editor of a draft: completion from the JSON Schema, live lint, and the decision.
import { post } from "./post.js";
import { schemaEditor } from "./schema_editor.js";

const field = document.getElementById("text");
const url = field.dataset.url;
const byId = (id) => document.getElementById(id);

const schema = fetch(field.dataset.schema).then((response) => response.json());
const editor = schemaEditor(field, byId("editor"), schema);
let saved = editor.getValue();

// Show problems as marks beside the lines, and as a list that leads to them.
function showProblems(problems) {
  editor.session.setAnnotations(
    problems.map(({ row, column, level, message }) => ({
      row,
      column,
      text: message,
      type: level === "note" ? "info" : level,
    })),
  );
  byId("problems").replaceChildren(
    ...problems.map(({ row, column, level, message }) => {
      const item = document.createElement("li"),
        line = document.createElement("button"),
        mark = document.createElement("span");
      mark.className = `pill ${{ error: "failed", warning: "inconclusive" }[level] ?? "even"}`;
      mark.textContent = level;
      line.type = "button";
      line.textContent = `line ${row + 1}`;
      line.addEventListener("click", () => {
        editor.gotoLine(row + 1, column);
        editor.focus();
      });
      item.append(mark, " ", line, ` ${message}`);
      return item;
    }),
  );
}

function showDiff(lines) {
  byId("changes").hidden = !lines.length;
  byId("changes")
    .querySelector("pre")
    .replaceChildren(
      ...lines.map((text) => {
        const line = document.createElement("span");
        line.className = { "+": "added", "-": "removed", "@": "place" }[text[0]] ?? "";
        line.textContent = `${text}\n`;
        return line;
      }),
    );
}

const state = (text) => {
  byId("state").textContent = text;
};

function fail(error) {
  byId("problem").textContent = error.message;
  byId("problem").hidden = false;
}

let timer,
  latest = 0;
async function lint() {
  const number = ++latest;
  try {
    const { problems, diff } = await (await post(`${url}/lint`, { text: editor.getValue() })).json();
    if (number !== latest) return; // a later text is being checked
    showProblems(problems);
    showDiff(diff);
    state(`${problems.length} problem${problems.length === 1 ? "" : "s"}${diff.length ? ", not saved" : ""}`);
  } catch (error) {
    state(error.message);
  }
}
if (!field.readOnly) {
  editor.session.on("change", () => {
    clearTimeout(timer);
    timer = setTimeout(lint, 500);
  });
  lint();
}

async function save() {
  const text = editor.getValue();
  const { hash, report } = await (await post(`${url}/save`, { text, hash: field.dataset.hash })).json();
  field.dataset.hash = hash;
  saved = text;
  byId("report").innerHTML = report; // a template of this application, which escapes all texts
  await lint();
}

async function decide(action) {
  byId("problem").hidden = true;
  try {
    if (editor.getValue() !== saved) await save();
    const body = { reviewer: byId("reviewer").value, reason: byId("reason").value, hash: field.dataset.hash };
    const { message } = await (await post(`${url}/${action}`, body)).json();
    saved = editor.getValue(); // nothing is lost by leaving
    state(message);
    location.assign("/review");
  } catch (error) {
    fail(error);
  }
}

if (!field.readOnly) {
  // Someone may have typed a name before this script was loaded.
  byId("reviewer").value ||= localStorage.getItem("reviewer") ?? "";
  byId("reviewer").addEventListener("change", () => localStorage.setItem("reviewer", byId("reviewer").value));
  byId("save").addEventListener("click", () => {
    byId("problem").hidden = true;
    save().catch(fail);
  });
  byId("accept").addEventListener("click", () => decide("accept"));
  byId("reject").addEventListener("click", () => decide("reject"));
  addEventListener("beforeunload", (event) => {
    if (editor.getValue() !== saved) event.preventDefault();
  });
}

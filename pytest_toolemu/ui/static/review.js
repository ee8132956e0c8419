// The editor of a draft: completion from the JSON Schema, live lint, and the decision.
import { post } from "./post.js";
import { completions } from "./schema_completion.js";

const field = document.getElementById("text");
const url = field.dataset.url;
const byId = (id) => document.getElementById(id);

const { ace } = window;
ace.config.set("basePath", "/static/vendor/ace");
ace.config.set("useStrictCSP", true);
const place = byId("editor");
place.hidden = false;
const editor = ace.edit(place);
editor.session.setUseWorker(false); // before the mode, which would start one; the server checks the text
editor.setOptions({
  mode: "ace/mode/yaml",
  value: field.value,
  readOnly: field.readOnly,
  tabSize: 2,
  useSoftTabs: true,
  showPrintMargin: false,
  wrap: true,
  enableBasicAutocompletion: true,
  enableLiveAutocompletion: true,
  enableKeyboardAccessibility: true,
});
editor.textInput.getElement().setAttribute("aria-label", field.getAttribute("aria-label"));
field.hidden = true;
let saved = editor.getValue();

const schema = fetch(field.dataset.schema).then((response) => response.json());
editor.completers = [
  {
    async getCompletions(_, session, position, prefix, callback) {
      const above = session.getLines(0, position.row - 1),
        line = session.getLine(position.row).slice(0, position.column);
      callback(
        null,
        completions(await schema, above, line).map(({ value, meta, description }) => ({
          caption: value,
          value,
          meta,
          docText: description,
        })),
      );
    },
  },
];

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
  const { hash, card } = await (await post(`${url}/save`, { text, hash: field.dataset.hash })).json();
  field.dataset.hash = hash;
  saved = text;
  byId("card").innerHTML = card; // a template of this application, which escapes all texts
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

// The form of a label: saved as JSON, filled by keys.
import { post } from "./post.js";

const form = document.getElementById("label");
const problem = document.getElementById("problem");
const SCORES = ["safety", "helpfulness"];

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const values = new FormData(form);
  const issue = values.get("critical_issue");
  try {
    const response = await post(form.dataset.url, {
      trajectory: form.dataset.trajectory,
      safety: Number(values.get("safety")),
      helpfulness: Number(values.get("helpfulness")),
      critical_issue: issue === "True",
      note: values.get("note").trim(),
    });
    location.assign((await response.json()).next);
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
  }
});

function choose(name, value) {
  const input = form.querySelector(`input[name="${name}"][value="${value}"]`);
  input.checked = true;
  input.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("textarea, select, button, a")) return;
  if (/^[0-3]$/.test(event.key)) {
    const open = SCORES.find((name) => !form.querySelector(`input[name="${name}"]:checked`));
    const focused = SCORES.find((name) => name === event.target.name);
    choose(open ?? focused ?? SCORES[0], event.key);
  } else if (event.key === "y" || event.key === "n") {
    choose("critical_issue", event.key === "y" ? "True" : "False");
  } else if (event.key === "Enter" && !event.target.closest("summary") && form.querySelector("button[type=submit]")) {
    event.preventDefault();
    form.requestSubmit();
  }
});

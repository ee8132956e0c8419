// An editor with completion from a JSON Schema, in place of a text area, whose text it keeps current.
import { completions } from "./schema_completion.js";

/** Edit a text area in an element; ``schema`` is the JSON Schema of its YAML or, with ``isJson``, JSON text. */
export function schemaEditor(field, place, schema, isJson = false) {
  const { ace } = window;
  ace.config.set("basePath", "/static/vendor/ace");
  ace.config.set("useStrictCSP", true);
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
  editor.textInput.getElement().setAttribute("aria-label", field.getAttribute("aria-label") ?? field.labels[0].textContent);
  field.hidden = true;
  editor.session.on("change", () => {
    field.value = editor.getValue();
  });
  editor.completers = [
    {
      async getCompletions(_, session, position, prefix, callback) {
        const above = session.getLines(0, position.row - 1),
          line = session.getLine(position.row).slice(0, position.column);
        callback(
          null,
          completions(await schema, above, line, isJson).map(({ value, meta, description }) => ({
            caption: value,
            value,
            meta,
            docText: description,
          })),
        );
      },
    },
  ];
  return editor;
}

// What a JSON Schema allows at the cursor of a YAML file in block style: keys of the mapping, or values of the key.

/** Return the keys that lead to the mapping of a line, with "-" for an item of a list; ``above`` are the lines before it. */
export function pathTo(above, line) {
  const open = []; // the keys and items that contain the current line, with their columns
  const close = (column, isItem) => {
    // The items of a list may be in the same column as its key.
    while (
      open.length &&
      (open.at(-1).column > column || (open.at(-1).column === column && (!isItem || open.at(-1).name === "-")))
    )
      open.pop();
  };
  for (const [number, text] of [...above, line].entries()) {
    if (number < above.length && /^\s*(#|$)/.test(text)) continue;
    let column = text.search(/\S|$/),
      rest = text.slice(column);
    for (let item; (item = /^-(\s+|$)/.exec(rest)); column += item[0].length, rest = rest.slice(item[0].length)) {
      close(column, true);
      open.push({ column, name: "-" });
    }
    close(column, false);
    const key = /^["']?([^"':#]+?)["']?\s*:(\s|$)/.exec(rest)?.[1];
    if (key !== undefined && number < above.length) open.push({ column, name: key });
  }
  return open.map(({ name }) => name);
}

// All schemas that a schema may stand for.
function variants(root, schema, depth = 0) {
  if (!schema || typeof schema !== "object" || depth > 8) return [];
  if (schema.$ref)
    return variants(
      root,
      schema.$ref
        .replace("#/", "")
        .split("/")
        .reduce((part, name) => part?.[name], root),
      depth + 1,
    );
  const parts = [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
  return [schema, ...parts.flatMap((part) => variants(root, part, depth + 1))];
}

function at(root, path) {
  let schemas = variants(root, root);
  for (const step of path) {
    const next = schemas.flatMap((schema) =>
      step === "-"
        ? [schema.items, ...(schema.prefixItems ?? [])]
        : [
            schema.properties?.[step] ?? schema.additionalProperties,
            ...Object.values(schema.properties?.[step] ? {} : (schema.patternProperties ?? {})),
          ],
    );
    schemas = next.flatMap((schema) => variants(root, schema));
  }
  return schemas;
}

/** Return the completions of a line up to the cursor; ``above`` are the lines before it. JSON has an entry on each line. */
export function completions(root, above, line, isJson = false) {
  const key = /^\s*(?:- )*"?([\w-]+)"?:\s+\S*$/.exec(line)?.[1];
  if (key) {
    const schemas = at(root, [...pathTo(above, line), key]);
    const values = schemas.flatMap((schema) => [
      ...(schema.enum ?? []),
      ...("const" in schema ? [schema.const] : []),
      ...(schema.type === "boolean" ? [true, false] : []),
    ]);
    return [...new Set(values.map((value) => (isJson ? JSON.stringify(value) : String(value))))].map((value) => ({ value, meta: "value", description: "" }));
  }
  const inside = at(root, pathTo(above, line));
  // Items of a list in JSON have no mark that belongs to the path.
  const schemas = isJson ? inside.flatMap((schema) => [schema, ...variants(root, schema.items)]) : inside;
  const names = new Map(schemas.flatMap((schema) => Object.entries(schema.properties ?? {})));
  return [...names].map(([name, schema]) => ({
    value: isJson ? `${JSON.stringify(name)}: ` : `${name}: `,
    meta: "key",
    description: schema.description ?? "",
  }));
}

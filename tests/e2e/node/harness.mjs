// What the scripts of this folder share: scenarios, which are run one after the other, and things to ask about.
import assert from "node:assert/strict";

const scenarios = [];
export const scenario = (name, run) => scenarios.push([name, run]);

export const question = [{ role: "user", content: "What is the capital of France?" }];
export const weather = {
  name: "get_weather",
  description: "Get the current weather for a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
};
export const shape = {
  type: "object",
  properties: { name: { type: "string", maxLength: 12 }, age: { type: "integer", minimum: 0, maximum: 150 } },
  required: ["name", "age"],
  additionalProperties: false,
};

export async function stats(url) {
  return (await fetch(`${url}/stats`)).json();
}

// Waits until no request is open any more.
export async function idle(url) {
  const until = Date.now() + 30000;
  while ((await stats(url)).requests.open > 0) assert.ok(Date.now() < until, "a request is still open");
}

// Prints one line for each scenario; the exit code is 1 when one of them fails.
export async function run() {
  let failed = 0;
  for (const [name, go] of scenarios) {
    const start = Date.now();
    try {
      await go();
      console.log(`ok   ${name} (${Date.now() - start} ms)`);
    } catch (error) {
      failed++;
      console.log(`FAIL ${name}\n${error.stack}`);
    }
  }
  console.log(`${scenarios.length - failed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}

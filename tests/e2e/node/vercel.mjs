// The AI SDK with its OpenAI, OpenAI-compatible and Anthropic providers against a running server.
// usage: node vercel.mjs URL
import assert from "node:assert/strict";
import { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createAnthropic } from "@ai-sdk/anthropic";
import { scenario, idle, run, shape, weather } from "./harness.mjs";

const url = process.argv[2];
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey: "any" });
const models = {
  chat: openai.chat("gpt-4o"),
  responses: openai.responses("gpt-4o"),
  compatible: createOpenAICompatible({
    name: "weir", baseURL: `${url}/v1`, includeUsage: true, supportsStructuredOutputs: true,
  })("x"),
  messages: createAnthropic({ baseURL: `${url}/v1`, apiKey: "any" })("claude-x"),
};
const prompt = "What is the capital of France?";
const common = { maxRetries: 0, maxOutputTokens: 100 };
const tools = () => {
  const asked = [];
  const get_weather = tool({
    description: weather.description,
    inputSchema: jsonSchema(weather.parameters),
    execute: async ({ city }) => { asked.push(city); return { temperature: 21 }; },
  });
  return { asked, tools: { get_weather } };
};

for (const [name, model] of Object.entries(models)) {
  scenario(`ai, ${name}: a text`, async () => {
    const reply = await generateText({ ...common, model, prompt });
    assert.match(reply.text, /Paris/);
    assert.equal(reply.finishReason, "stop");
    assert.ok(reply.usage.inputTokens + (reply.usage.cachedInputTokens ?? 0) > 5);
    assert.ok(reply.usage.outputTokens > 1);
  });

  scenario(`ai, ${name}: a stream`, async () => {
    const errors = [];
    const reply = streamText({ ...common, model, prompt, onError: ({ error }) => errors.push(error) });
    let text = "";
    for await (const delta of reply.textStream) text += delta;
    assert.deepEqual(errors, []);
    assert.match(text, /Paris/);
    assert.equal(await reply.finishReason, "stop");
    assert.ok((await reply.usage).outputTokens > 1);
  });

  scenario(`ai, ${name}: a loop of tools`, async () => {
    const { asked, tools: set } = tools();
    const reply = await generateText({
      ...common, model, prompt: "What is the weather in Paris?", tools: set, stopWhen: stepCountIs(3),
    });
    assert.deepEqual(asked, ["Paris"]);
    assert.equal(reply.steps.length, 2);
    assert.equal(reply.steps[0].finishReason, "tool-calls");
    assert.equal(reply.finishReason, "stop");
    assert.ok(reply.text.length > 0);
  });

  scenario(`ai, ${name}: a streamed loop of tools`, async () => {
    const { asked, tools: set } = tools();
    const reply = streamText({
      ...common, model, prompt: "What is the weather in Paris?", tools: set, stopWhen: stepCountIs(3),
    });
    const types = [];
    for await (const part of reply.fullStream) {
      assert.notEqual(part.type, "error", JSON.stringify(part));
      types.push(part.type);
    }
    assert.deepEqual(asked, ["Paris"]);
    assert.equal(types.filter((type) => type === "tool-call").length, 1);
    assert.equal(types.filter((type) => type === "tool-result").length, 1);
    assert.equal((await reply.steps).length, 2);
  });

  scenario(`ai, ${name}: a forced tool`, async () => {
    const reply = await generateText({
      ...common, model, prompt: "What is the weather in Rome?", tools: tools().tools,
      toolChoice: { type: "tool", toolName: "get_weather" },
    });
    assert.equal(reply.toolCalls.length, 1);
    assert.equal(typeof reply.toolCalls[0].input.city, "string");
  });

  scenario(`ai, ${name}: an object`, async () => {
    const { object } = await generateObject({
      ...common, model, prompt: "Give me a JSON object with name and age.", schema: jsonSchema(shape),
    });
    assert.deepEqual(Object.keys(object).sort(), ["age", "name"]);
    assert.ok(Number.isInteger(object.age));
  });

  scenario(`ai, ${name}: an aborted stream ends its request`, async () => {
    const stop = new AbortController();
    const reply = streamText({
      ...common, maxOutputTokens: 4000, model, abortSignal: stop.signal, onError: () => {},
      prompt: "Tell me about a small fox.",
    });
    for await (const part of reply.fullStream) if (part.type === "text-delta") stop.abort();
    await idle(url);
  });
}

scenario("ai: reasoning is apart from text", async () => {
  const prompt = "What is 17 plus 25?";
  const replies = await Promise.all([
    generateText({
      ...common, model: models.compatible, prompt, providerOptions: { weir: { reasoningEffort: "high" } },
    }),
    generateText({
      ...common, model: models.messages, prompt,
      providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } },
    }),
  ]);
  for (const reply of replies) {
    assert.ok(reply.reasoningText.length > 0);
    assert.match(reply.text, /42/);
  }
});

scenario("ai: errors say which field", async () => {
  await assert.rejects(generateText({ ...common, model: models.chat, prompt, temperature: 9 }), (error) => {
    assert.equal(error.statusCode, 400);
    assert.match(error.message, /temperature/);
    return true;
  });
});

await run();

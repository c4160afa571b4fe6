// The official client libraries against a running server. usage: node clients.mjs URL
import assert from "node:assert/strict";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { scenario, idle, run, question, shape, stats, weather } from "./harness.mjs";

const url = process.argv[2];
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "any", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "any", maxRetries: 0 });
scenario("openai: models", async () => {
  const list = await openai.models.list();
  assert.equal(list.data.length, 1);
  assert.equal((await openai.models.retrieve(list.data[0].id)).id, list.data[0].id);
});

scenario("openai: a chat, whole", async () => {
  const reply = await openai.chat.completions.create({ model: "gpt-4o", messages: question });
  assert.match(reply.choices[0].message.content, /Paris/);
  assert.equal(reply.choices[0].finish_reason, "stop");
  assert.equal(typeof reply.created, "number");
  assert.equal(reply.usage.total_tokens, reply.usage.prompt_tokens + reply.usage.completion_tokens);
});

scenario("openai: a chat, streamed, with usage", async () => {
  const stream = await openai.chat.completions.create({
    model: "x", messages: question, stream: true, stream_options: { include_usage: true },
  });
  let text = "", usage = null, finish = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    finish ??= chunk.choices[0]?.finish_reason;
    if (chunk.usage) { usage = chunk.usage; assert.deepEqual(chunk.choices, []); }
  }
  assert.match(text, /Paris/);
  assert.equal(finish, "stop");
  assert.ok(usage.completion_tokens > 0);
});

scenario("openai: the stream helper puts a message together", async () => {
  const stream = openai.chat.completions.stream({ model: "x", messages: question });
  assert.match((await stream.finalMessage()).content, /Paris/);
});

scenario("openai: tools, called and answered", async () => {
  const tools = [{ type: "function", function: weather }];
  const messages = [{ role: "user", content: "What is the weather in Paris?" }];
  const first = await openai.chat.completions.create({ model: "x", messages, tools, tool_choice: "required" });
  const call = first.choices[0].message.tool_calls[0];
  assert.equal(first.choices[0].finish_reason, "tool_calls");
  assert.equal(first.choices[0].message.content, null);
  assert.equal(call.function.name, "get_weather");
  assert.equal(JSON.parse(call.function.arguments).city, "Paris");
  messages.push(first.choices[0].message, { role: "tool", tool_call_id: call.id, content: '{"temperature": 21}' });
  const second = await openai.chat.completions.create({ model: "x", messages, tools });
  assert.equal(second.choices[0].finish_reason, "stop");
  assert.ok(second.choices[0].message.content.length > 0);
});

scenario("openai: a streamed call is one complete delta", async () => {
  const stream = await openai.chat.completions.create({
    model: "x", messages: [{ role: "user", content: "What is the weather in Rome?" }], stream: true,
    tools: [{ type: "function", function: weather }], tool_choice: { type: "function", function: { name: "get_weather" } },
  });
  const deltas = [];
  for await (const chunk of stream) deltas.push(...(chunk.choices[0]?.delta.tool_calls ?? []));
  assert.equal(deltas.length, 1);
  assert.equal(deltas[0].index, 0);
  assert.match(deltas[0].id, /^call_[0-9A-Za-z]{24}$/);
  assert.equal(deltas[0].function.name, "get_weather");
  JSON.parse(deltas[0].function.arguments);
});

scenario("openai: structured output is valid", async () => {
  const reply = await openai.chat.completions.create({
    model: "x", messages: [{ role: "user", content: "Give me a JSON object with name and age." }],
    response_format: { type: "json_schema", json_schema: { name: "person", schema: shape, strict: true } },
  });
  const value = JSON.parse(reply.choices[0].message.content);
  assert.deepEqual(Object.keys(value).sort(), ["age", "name"]);
  assert.ok(Number.isInteger(value.age));
});

scenario("openai: log-probabilities of a chat", async () => {
  const create = (stream) => openai.chat.completions.create({
    model: "x", messages: question, logprobs: true, top_logprobs: 3, stream, seed: 1,
  });
  const whole = (await create(false)).choices[0];
  const entries = [];
  for await (const chunk of await create(true)) entries.push(...(chunk.choices[0]?.logprobs?.content ?? []));
  assert.equal(whole.logprobs.content.map((e) => e.token).join(""), whole.message.content);
  assert.deepEqual(entries, whole.logprobs.content);
  for (const entry of entries) {
    assert.ok(entry.logprob <= 0);
    assert.equal(entry.top_logprobs.length, 3);
    assert.equal(Buffer.from(entry.bytes).toString(), entry.token);
  }
});

scenario("openai: text completions with echoed log-probabilities", async () => {
  const reply = await openai.completions.create({
    model: "x", prompt: "In the beginning God created", max_tokens: 1, echo: true, logprobs: 1, temperature: 0,
  });
  const { tokens, token_logprobs, top_logprobs, text_offset } = reply.choices[0].logprobs;
  for (const list of [token_logprobs, top_logprobs, text_offset]) assert.equal(list.length, tokens.length);
  assert.equal(tokens.join(""), reply.choices[0].text);
  assert.equal(token_logprobs[0], null);
  assert.ok(token_logprobs.slice(1).every((value) => value <= 0));
});

scenario("openai: errors are typed", async () => {
  await assert.rejects(openai.chat.completions.create({ model: "x", messages: question, temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    assert.equal(error.code, "invalid_value");
    assert.match(error.requestID, /^req_/);
    return true;
  });
  await assert.rejects(openai.embeddings.create({ model: "x", input: "a" }), OpenAI.BadRequestError);
});

scenario("openai: an aborted stream ends its request", async () => {
  const stream = await openai.chat.completions.create({
    model: "x", messages: question, stream: true, ignore_eos: true, max_tokens: 4000,
  });
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
  stream.controller.abort();
  await idle(url);
});

scenario("openai: a response, and one that goes on from it", async () => {
  const first = await openai.responses.create({ model: "x", input: "My name is Ann.", instructions: "Be brief." });
  assert.equal(first.status, "completed");
  assert.ok(first.output_text.length > 0);
  const second = await openai.responses.create({
    model: "x", input: "What is the capital of France?", previous_response_id: first.id,
  });
  assert.match(second.output_text, /Paris/);
  assert.ok(second.usage.input_tokens > first.usage.input_tokens);
  assert.equal((await openai.responses.retrieve(second.id)).output_text, second.output_text);
  const items = await openai.responses.inputItems.list(second.id);
  assert.equal(items.data.length, 3);
  await openai.responses.delete(first.id);
  await assert.rejects(openai.responses.retrieve(first.id), OpenAI.NotFoundError);
});

scenario("openai: a streamed response", async () => {
  const stream = await openai.responses.create({
    model: "x", input: "What is 3 plus 4?", stream: true, reasoning: { effort: "high" },
  });
  const types = [];
  let number = 0, text = "", last = null;
  for await (const event of stream) {
    assert.equal(event.sequence_number, number++);
    types.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  assert.deepEqual(types.slice(0, 3), ["response.created", "response.in_progress", "response.output_item.added"]);
  assert.equal(last.type, "response.completed");
  assert.deepEqual(last.response.output.map((item) => item.type), ["reasoning", "message"]);
  assert.equal(last.response.output[1].content[0].text, text);
  assert.equal(types.filter((type) => type === "response.output_item.done").length, 2);
});

scenario("openai: tools of a response, also in a namespace", async () => {
  const tools = [
    { type: "function", ...weather, strict: false },
    { type: "namespace", name: "maps", description: "Maps", tools: [{ type: "function", ...weather, name: "find" }] },
    { type: "web_search" },
  ];
  const input = [{ role: "user", content: "What is the weather in Paris?" }];
  const { data: first, response } = await openai.responses.create({
    model: "x", input, tools, tool_choice: { type: "function", name: "get_weather" },
  }).withResponse();
  assert.equal(response.headers.get("x-dropped-tools"), "web_search");
  const call = first.output.find((item) => item.type === "function_call");
  assert.equal(call.name, "get_weather");
  assert.equal(JSON.parse(call.arguments).city, "Paris");
  input.push(...first.output, { type: "function_call_output", call_id: call.call_id, output: '{"temperature": 21}' });
  const second = await openai.responses.create({ model: "x", input, tools });
  assert.equal(second.status, "completed");
  const third = await openai.responses.create({
    model: "x", input: "Find Rome", tools, tool_choice: { type: "function", name: "find", namespace: "maps" },
  });
  const found = third.output.find((item) => item.type === "function_call");
  assert.equal(found.name, "find");
  assert.equal(found.namespace, "maps");
});

scenario("anthropic: models", async () => {
  const list = await anthropic.models.list();
  assert.equal(list.data.length, 1);
});

scenario("anthropic: a message, whole", async () => {
  const reply = await anthropic.messages.create({ model: "claude-x", max_tokens: 60, messages: question });
  assert.equal(reply.content.length, 1);
  assert.match(reply.content[0].text, /Paris/);
  assert.equal(reply.stop_reason, "end_turn");
});

scenario("anthropic: a message, streamed, with thinking", async () => {
  const stream = anthropic.messages.stream({
    model: "x", max_tokens: 100, messages: [{ role: "user", content: "What is 3 plus 4?" }],
    thinking: { type: "enabled", budget_tokens: 1024 },
  });
  let started = null;
  stream.on("streamEvent", (event) => { if (event.type === "message_start") started = event.message; });
  const message = await stream.finalMessage();
  assert.deepEqual(message.content.map((block) => block.type), ["thinking", "text"]);
  assert.ok(message.content[0].signature.length > 0);
  assert.match(message.content[1].text, /7/);
  assert.ok(started.usage.input_tokens > 0);
});

scenario("anthropic: the count is what the message costs", async () => {
  const request = { model: "x", system: "Be brief.", messages: question };
  const { input_tokens } = await anthropic.messages.countTokens(request);
  const { usage } = await anthropic.messages.create({ ...request, max_tokens: 1 });
  assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
});

scenario("anthropic: tools, called and answered", async () => {
  const tools = [{ name: weather.name, description: weather.description, input_schema: weather.parameters }];
  const messages = [{ role: "user", content: "What is the weather in Paris?" }];
  const stream = anthropic.messages.stream({ model: "x", max_tokens: 100, messages, tools, tool_choice: { type: "any" } });
  const first = await stream.finalMessage();
  const use = first.content.find((block) => block.type === "tool_use");
  assert.equal(first.stop_reason, "tool_use");
  assert.equal(use.input.city, "Paris");
  messages.push({ role: "assistant", content: first.content }, {
    role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: '{"temperature": 21}' }],
  });
  const second = await anthropic.messages.create({ model: "x", max_tokens: 100, messages, tools });
  assert.equal(second.stop_reason, "end_turn");
});

scenario("anthropic: stop sequences and limits have their reasons", async () => {
  const stopped = await anthropic.messages.create({
    model: "x", max_tokens: 60, messages: question, stop_sequences: ["Paris"],
  });
  assert.equal(stopped.stop_reason, "stop_sequence");
  assert.equal(stopped.stop_sequence, "Paris");
  assert.doesNotMatch(stopped.content[0].text, /Paris/);
  const cut = await anthropic.messages.create({ model: "x", max_tokens: 2, messages: question });
  assert.equal(cut.stop_reason, "max_tokens");
});

scenario("anthropic: errors are typed", async () => {
  await assert.rejects(anthropic.messages.create({ model: "x", messages: question }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.equal(error.error.type, "error");
    assert.match(error.error.request_id, /^req_/);
    return true;
  });
});

scenario("anthropic: an aborted stream ends its request", async () => {
  const stream = anthropic.messages.stream({ model: "x", max_tokens: 4000, messages: question, ignore_eos: true });
  await new Promise((resolve) => stream.once("text", resolve));
  stream.abort();
  await assert.rejects(stream.finalMessage());
  await idle(url);
});

// Each way of giving up, for requests that would go on for long: the server stops too, and nothing is run twice.
const endless = { model: "x", max_tokens: 4000, ignore_eos: true, messages: question };
const given_up = (error) =>
  error instanceof OpenAI.APIConnectionTimeoutError || error instanceof OpenAI.APIUserAbortError ||
  error instanceof Anthropic.APIConnectionTimeoutError || error instanceof Anthropic.APIUserAbortError;
const cancelled = async () => (await stats(url)).answers.cancelled;
const aborts = {
  "openai: an aborted answer": (signal) => openai.chat.completions.create(endless, { signal }),
  "openai: an aborted response": (signal) =>
    openai.responses.create({ model: "x", input: "hi", ignore_eos: true, max_output_tokens: 4000 }, { signal }),
  "anthropic: an aborted answer": (signal) => anthropic.messages.create(endless, { signal }),
};
for (const [name, ask] of Object.entries(aborts)) {
  scenario(`${name} ends its request`, async () => {
    const before = await cancelled(), stop = new AbortController();
    const asked = assert.rejects(ask(stop.signal), given_up);
    while ((await stats(url)).requests.running === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    stop.abort();
    await asked;
    await idle(url);
    assert.equal(await cancelled(), before + 1);
  });
}

// A timeout may also come before the server has seen anything of the request; then there is nothing to end, and a longer
// one is tried.
const timeouts = {
  "openai: a timeout": [1, (timeout) => openai.withOptions({ timeout }).chat.completions.create(endless)],
  "anthropic: a timeout": [1, (timeout) => anthropic.withOptions({ timeout }).messages.create(endless)],
  "openai: a timeout that is retried": [2, (timeout) =>
    openai.withOptions({ timeout, maxRetries: 1 }).chat.completions.create(endless)],
};
for (const [name, [attempts, ask]] of Object.entries(timeouts)) {
  scenario(`${name} ends its request`, async () => {
    let ended = 0;
    for (let timeout = 300; ended < attempts && timeout < 2000; timeout *= 2) {
      const before = await cancelled();
      await assert.rejects(ask(timeout), given_up);
      await idle(url);
      ended = (await cancelled()) - before;
      assert.ok(ended <= attempts);
    }
    assert.equal(ended, attempts);
  });
}

scenario("anthropic: structured output is valid", async () => {
  const reply = await anthropic.messages.create({
    model: "x", max_tokens: 60, messages: [{ role: "user", content: "Give me a JSON object with name and age." }],
    output_config: { format: { type: "json_schema", schema: shape } },
  });
  assert.deepEqual(Object.keys(JSON.parse(reply.content[0].text)).sort(), ["age", "name"]);
});

scenario("openai: structured output of a response is valid", async () => {
  const reply = await openai.responses.create({
    model: "x", input: "Give me a JSON object with name and age.",
    text: { format: { type: "json_schema", name: "person", schema: shape, strict: true } },
  });
  assert.deepEqual(Object.keys(JSON.parse(reply.output_text)).sort(), ["age", "name"]);
});

scenario("both: a full queue is retried when it says so", async () => {
  // The server of this test runs 2 requests, and 1 may wait.
  const long = { model: "x", messages: question, stream: true, ignore_eos: true, max_tokens: 4000 };
  const streams = [];
  for (let i = 0; i < 3; i++) streams.push(await openai.chat.completions.create(long));
  await assert.rejects(openai.chat.completions.create({ model: "x", messages: question }), (error) => {
    assert.ok(error instanceof OpenAI.RateLimitError);
    assert.equal(error.code, "queue_full");
    assert.ok(Number(error.headers.get("retry-after")) >= 1);
    return true;
  });
  const patient = openai.withOptions({ maxRetries: 2 }).chat.completions.create({ model: "x", messages: question });
  for (const stream of streams) stream.controller.abort();
  assert.match((await patient).choices[0].message.content, /Paris/);
  await idle(url);
});

await run();

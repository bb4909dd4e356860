// A model with a script that speaks as much of the Responses API as Codex needs, on loopback.

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TestContext } from 'node:test';

import { listen, text } from './listen.ts';

/** What the model does next: call a tool. When there is no more, it says that it is done. */
export interface Step {
  tool: string;
  /** The server whose tool it is, where it is one of MCP. */
  namespace?: string;
  input: Record<string, unknown>;
}

export interface Model {
  url: string;
  /** What each call was answered, as the model was told. */
  results: string[];
  /** The names of the tools that the model was shown. */
  tools: Set<string>;
  /** All that it was sent. */
  heard: string;
}

interface Item {
  type: string;
  output?: unknown;
}

export async function model(t: TestContext, steps: Step[]): Promise<Model> {
  const made: Model = { url: '', results: [], tools: new Set(), heard: '' };
  const port = await listen(t, (request, response) => void answer(request, response, steps, made));
  made.url = `http://127.0.0.1:${port}/v1`;
  return made;
}

async function answer(request: IncomingMessage, response: ServerResponse, steps: Step[], made: Model): Promise<void> {
  const body = await text(request);
  if (request.method !== 'POST' || request.url !== '/v1/responses') {
    response.writeHead(404).end();
    return;
  }
  made.heard += body;
  const asked = JSON.parse(body) as { input: Item[]; tools?: { name?: string; type: string; tools?: { name: string }[] }[] };
  for (const tool of asked.tools ?? []) {
    made.tools.add(tool.name ?? tool.type);
    for (const one of tool.tools ?? []) made.tools.add(`${tool.name}.${one.name}`);
  }
  const results = asked.input.filter((item) => item.type.endsWith('_call_output')).map((item) => plain(item.output));
  if (results.length > made.results.length) made.results = results;
  const step = steps[results.length];
  const id = `${results.length}_${Math.random().toString(36).slice(2)}`;
  const item =
    step === undefined
      ? { type: 'message', id: `msg_${id}`, role: 'assistant', content: [{ type: 'output_text', text: 'done' }] }
      : {
          type: 'function_call',
          id: `fc_${id}`,
          call_id: `call_${id}`,
          name: step.tool,
          ...(step.namespace === undefined ? {} : { namespace: step.namespace }),
          arguments: JSON.stringify(step.input),
        };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (type: string, data: object) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  send('response.created', { response: { id: `resp_${id}` } });
  send('response.output_item.done', { output_index: 0, item });
  const usage = { input_tokens: 1, input_tokens_details: null, output_tokens: 1, output_tokens_details: null, total_tokens: 2 };
  send('response.completed', { response: { id: `resp_${id}`, usage } });
  response.end();
}

function plain(output: unknown): string {
  return typeof output === 'string' ? output : JSON.stringify(output);
}

// A model with a script: an endpoint on loopback that speaks as much of the Messages API as the Agent SDK needs.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { TestContext } from 'node:test';

/** What the model does next: use a tool, or say the last words. */
export type Step = { tool: string; input: Record<string, unknown> } | { text: string };

interface Block {
  type: string;
  content?: unknown;
  is_error?: boolean;
}

export interface Model {
  url: string;
  /** What each tool answered, as the model was told. */
  results: { text: string; isError: boolean }[];
  /** The names of the tools that the model was shown. */
  tools: Set<string>;
  /** All that it was sent. */
  heard: string;
}

export async function model(t: TestContext, steps: Step[]): Promise<Model> {
  const made: Model = { url: '', results: [], tools: new Set(), heard: '' };
  const server = createServer((request, response) => {
    void answer(request, response, steps, made);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  made.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return made;
}

async function answer(request: IncomingMessage, response: ServerResponse, steps: Step[], made: Model): Promise<void> {
  let body = '';
  for await (const piece of request) body += String(piece);
  if (request.method !== 'POST' || !request.url?.startsWith('/v1/messages') || request.url.includes('count_tokens')) {
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"input_tokens":1}');
    return;
  }
  made.heard += body;
  const asked = JSON.parse(body) as { messages: { role: string; content: string | Block[] }[]; tools?: { name: string }[]; stream?: boolean };
  for (const tool of asked.tools ?? []) made.tools.add(tool.name);
  const results = asked.messages
    .flatMap((message) => (typeof message.content === 'string' ? [] : message.content))
    .filter((block) => block.type === 'tool_result')
    .map((block) => ({ text: plain(block.content), isError: block.is_error === true }));
  if (results.length > made.results.length) made.results = results;
  // Requests without tools are asides, such as one for a title.
  const step = (asked.tools ?? []).length === 0 ? { text: 'aside' } : (steps[results.length] ?? { text: 'done' });
  const block =
    'tool' in step
      ? { type: 'tool_use', id: `toolu_${results.length}_${Math.random().toString(36).slice(2)}`, name: step.tool, input: step.input }
      : { type: 'text', text: step.text };
  const stop = 'tool' in step ? 'tool_use' : 'end_turn';
  const message = {
    id: `msg_${Math.random().toString(36).slice(2)}`,
    type: 'message',
    role: 'assistant',
    model: 'claude-scripted',
    content: [] as unknown[],
    stop_reason: null as string | null,
    stop_sequence: null,
    usage: { input_tokens: 1, output_tokens: 1, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 },
  };
  if (asked.stream !== true) {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ ...message, content: [block], stop_reason: stop }));
    return;
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (type: string, data: object) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  send('message_start', { message });
  if (block.type === 'tool_use') {
    send('content_block_start', { index: 0, content_block: { ...block, input: {} } });
    const delta = { type: 'input_json_delta', partial_json: JSON.stringify('input' in block ? block.input : {}) };
    send('content_block_delta', { index: 0, delta });
  } else {
    send('content_block_start', { index: 0, content_block: { type: 'text', text: '' } });
    send('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'text' in block ? block.text : '' } });
  }
  send('content_block_stop', { index: 0 });
  send('message_delta', { delta: { stop_reason: stop, stop_sequence: null }, usage: { output_tokens: 1 } });
  send('message_stop', {});
  response.end();
}

function plain(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return JSON.stringify(content);
  return content.map((one: { text?: string }) => one.text ?? JSON.stringify(one)).join('\n');
}

// A model with a script that speaks as much of the Gemini API as Gemini CLI needs, on loopback.

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TestContext } from 'node:test';

import { listen, text } from './listen.ts';

/** What the model does next: call a tool. When there is no more, it says that it is done. */
export interface Step {
  tool: string;
  input: Record<string, unknown>;
}

export interface Model {
  url: string;
  /** What each call was answered, as the model was told. */
  results: string[];
  /** All that it was sent. */
  heard: string;
}

interface Part {
  functionResponse?: { response: unknown };
}

export async function model(t: TestContext, steps: Step[]): Promise<Model> {
  const made: Model = { url: '', results: [], heard: '' };
  const port = await listen(t, (request, response) => void answer(request, response, steps, made));
  made.url = `http://127.0.0.1:${port}`;
  return made;
}

async function answer(request: IncomingMessage, response: ServerResponse, steps: Step[], made: Model): Promise<void> {
  const body = await text(request);
  if (!request.url?.includes(':streamGenerateContent')) {
    response.writeHead(404).end();
    return;
  }
  made.heard += body;
  const asked = JSON.parse(body) as { contents: { parts?: Part[] }[] };
  const results = asked.contents
    .flatMap((content) => content.parts ?? [])
    .filter((part) => part.functionResponse !== undefined)
    .map((part) => JSON.stringify(part.functionResponse!.response));
  if (results.length > made.results.length) made.results = results;
  const step = steps[results.length];
  const part = step === undefined ? { text: 'done' } : { functionCall: { name: step.tool, args: step.input } };
  const candidates = [{ content: { role: 'model', parts: [part] }, finishReason: 'STOP', index: 0 }];
  const usageMetadata = { promptTokenCount: 1, candidatesTokenCount: 1, totalTokenCount: 2 };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.end(`data: ${JSON.stringify({ candidates, usageMetadata, modelVersion: 'scripted' })}\n\n`);
}

// Tools in the form of the Vercel AI SDK, by its own code where it is installed.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Session, aiSdkTools, type AiSdk, type Told } from '../src/index.js';
import { place } from './surroundings.js';

interface Definition {
  description: string;
  inputSchema: { properties: Record<string, unknown>; required: string[] };
  execute(input: unknown, more?: { abortSignal?: AbortSignal }): Promise<Told>;
}

/** Gives back what it was given. */
const plain: AiSdk<Definition> = { tool: (definition) => definition, jsonSchema: (schema) => schema };

// By a name that the compiler does not look up.
const name = 'ai';
const ai = await import(name).catch(() => undefined);

test('tools for the ai sdk run behind the wall and tell a model of refusals', async (t) => {
  const { workspace, outside } = place(t);
  const policy = { commands: [{ deny: ['git', 'push'], why: 'nobody pushes from here' }] };
  const session = await Session.start({ workspace, policy });
  t.after(() => session.stop());
  const tools = aiSdkTools(plain, session);
  assert.deepEqual(tools.run_code.inputSchema.required, ['language', 'code']);
  const hello = { exitCode: 0, stdout: 'hello\n', stderr: '', timedOut: false };
  assert.deepEqual(await tools.run_command.execute({ command: 'echo hello' }), hello);
  assert.deepEqual(await tools.run_code.execute({ language: 'python', code: "print('hello')", timeout: 30 }), hello);
  assert.notEqual((await tools.run_command.execute({ command: `cat ${outside}` })).exitCode, 0);
  const refused = await tools.run_command.execute({ command: 'git push' });
  assert.match(refused.error ?? '', /nobody pushes/);
  assert.equal(refused.exitCode, undefined);
  for (const nonsense of [{}, { command: ['ls'] }, { command: 1 }, { command: 'ls', timeout: -1 }]) {
    assert.ok((await tools.run_command.execute(nonsense)).error, JSON.stringify(nonsense));
  }
  assert.ok((await tools.run_code.execute({ language: 'cobol', code: 'x' })).error);
});

test('the ai sdk itself takes the tools and calls them', { skip: ai === undefined && 'SKIPPED LOUDLY: `ai` could not be fetched' }, async (t) => {
  const { workspace } = place(t);
  const session = await Session.start({ workspace });
  t.after(() => session.stop());
  const tools: Record<string, any> = aiSdkTools(ai, session);
  assert.deepEqual(Object.keys(tools), ['run_command', 'run_code']);
  const schema = await ai.asSchema(tools['run_command'].inputSchema).jsonSchema;
  assert.deepEqual(schema.required, ['command']);
  const told = await tools['run_command'].execute({ command: 'echo hello' }, { toolCallId: '1', messages: [] });
  assert.equal(told.stdout, 'hello\n');
});

// The real Claude Agent SDK with its own binary, against a scripted model on loopback. Nothing leaves this machine.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { getSandboxExecutor, sandboxQuery, sandboxTool, type SandboxPolicy } from '../src/index.js';
import { model, type Model, type Step } from './model.js';
import { place, server, type Place } from './surroundings.js';

const SDK = '@anthropic-ai/claude-agent-sdk';
const agent = (await import(SDK).catch(() => undefined)) as { query: (params: never) => AsyncIterable<Loose> & { close(): void } } | undefined;
const hasMcp = spawnSync(process.env['RINGFENCE_BIN']!, ['mcp', '--help']).status === 0;

// Loud, and a failure where it may not be: a skip that nobody sees proves nothing.
const noAgent = agent === undefined ? `SKIPPED LOUDLY: ${SDK} is not installed` : false;
const noMcp = noAgent || (hasMcp ? false : 'SKIPPED LOUDLY: this binary has no `ringfence mcp`');
for (const why of new Set([noAgent, noMcp])) {
  if (why !== false) {
    console.error(why);
    assert.ok(!(process.env['RINGFENCE_SDK_REQUIRE'] ?? '').includes('agent'), `${why}, and RINGFENCE_SDK_REQUIRE asks for it`);
  }
}

type Loose = Record<string, any>;
const RUN = sandboxTool('sandboxed_code_run');

/** For tests of what a binary without `ringfence mcp` has no part in: a server that lists the tool and refuses to run it. */
const STUB = `
require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const results = {
    initialize: () => ({ protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'stub', version: '0' } }),
    'tools/list': () => ({ tools: [{ name: 'sandboxed_code_run', inputSchema: { type: 'object' } }] }),
  };
  const answer = results[method] ? { result: results[method]() } : { error: { code: -32601, message: 'no such method' } };
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, ...answer }) + '\\n');
});`;

function binaryFor(where: Place): string {
  if (hasMcp) return process.env['RINGFENCE_BIN']!;
  const path = join(where.home, 'stub');
  writeFileSync(path, `#!/usr/bin/env node\n${STUB}`, { mode: 0o755 });
  return path;
}

/** What works without the internet. */
function environment(home: string, url: string): Record<string, string> {
  return {
    PATH: process.env['PATH'] ?? '',
    HOME: home,
    CLAUDE_CODE_TMPDIR: home,
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_API_KEY: 'sk-made-up',
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    ENABLE_TOOL_SEARCH: 'false',
    IS_SANDBOX: '1',
    MY_API_TOKEN: 's3cret-of-the-host',
  };
}

interface Ask {
  sandboxPolicy?: SandboxPolicy;
  tools?: string[];
  approvedTools?: string[];
  prompt?: string;
  verbatimPrompts?: boolean;
}

/** Lets the scripted model do its steps, and returns what it was told. */
async function ask(t: TestContext, where: Place, steps: Step[], more: Ask = {}): Promise<Model> {
  const scripted = await model(t, steps);
  const { tools, verbatimPrompts, prompt = 'go', ...params } = more;
  const options: Loose = { env: environment(where.home, scripted.url), maxTurns: steps.length + 3, persistSession: false };
  if (tools !== undefined) options['tools'] = tools;
  if (verbatimPrompts !== undefined) options['verbatimPrompts'] = verbatimPrompts;
  const messages: Loose[] = [];
  for await (const message of sandboxQuery({ prompt, workspace: where.workspace, binary: binaryFor(where), options, ...params } as never)) {
    messages.push(message as Loose);
  }
  assert.equal(messages.at(-1)?.['subtype'], 'success', JSON.stringify(messages.at(-1)));
  assert.equal(scripted.results.length, steps.length, JSON.stringify(messages));
  return scripted;
}

const bash = (command: string): Step => ({ tool: 'Bash', input: { command, description: 'x' } });
const python = (code: string, more: Loose = {}): Step => ({ tool: RUN, input: { code, language: 'python', ...more } });

test('bash is not even shown and where it is shown it is denied with advice that reaches the model', { skip: noAgent }, async (t) => {
  const where = place(t);
  const target = join(where.home, 'written-by-bash');
  const hidden = await ask(t, where, [bash(`touch ${target}`)]);
  assert.ok(!hidden.tools.has('Bash'));
  assert.ok(hidden.results[0]!.isError);
  const shown = await ask(t, where, [bash(`touch ${target}`), { tool: 'Write', input: { file_path: target, content: 'x' } }], {
    tools: ['Bash', 'Write'],
  });
  assert.ok(shown.tools.has('Bash'));
  assert.match(shown.results[0]!.text, /mcp__ringfence__sandboxed_code_run/);
  assert.match(shown.results[1]!.text, /mcp__ringfence__files_write/);
  assert.ok(!existsSync(target));
  // The twin: the same model, endpoint and command, and Bash approved by the developer.
  await ask(t, where, [bash(`touch ${target}`)], { tools: ['Bash'], approvedTools: ['Bash'] });
  assert.ok(existsSync(target));
});

test('reading a file of the host with a tool that asks nobody is denied all the same', { skip: noAgent }, async (t) => {
  const where = place(t);
  const inside = join(where.workspace, 'given.txt');
  writeFileSync(inside, 'given');
  // Claude Code reads below its folder without asking `canUseTool`: only the hook stands in the way.
  const denied = await ask(t, where, [{ tool: 'Read', input: { file_path: inside } }], { tools: ['Read'] });
  assert.match(denied.results[0]!.text, /mcp__ringfence__files_read/);
  const allowed = await ask(t, where, [{ tool: 'Read', input: { file_path: inside } }], { tools: ['Read'], approvedTools: ['Read'] });
  assert.match(allowed.results[0]!.text, /given/);
});

test('a prompt that mentions a file of the host does not bring it along', { skip: noAgent }, async (t) => {
  const where = place(t);
  const prompt = `look at @${where.outside} please`;
  const verbatim = await ask(t, where, [], { prompt });
  assert.ok(verbatim.heard.includes(where.outside) && !verbatim.heard.includes('of the host'));
  const expanded = await ask(t, where, [], { prompt, verbatimPrompts: false });
  assert.ok(expanded.heard.includes('of the host'));
});

test('an agent with an executor of ours as its tool is held to the same', async (t) => {
  const where = place(t);
  const executor = getSandboxExecutor({ workdir: where.workspace, timeout: 5000 });
  const scripted = [['python3', '-c', 'print(6 * 7)'], ['cat', where.outside]];
  const told = await Promise.all(scripted.map(([cmd, ...args]) => executor.execute(cmd!, args)));
  assert.deepEqual(told.map((one) => one.stdout), ['42\n', '']);
});

test('hello world, the workspace, and nothing of the host through the agent', { skip: noMcp }, async (t) => {
  const where = place(t);
  writeFileSync(join(where.workspace, 'given.txt'), 'given');
  const told = await ask(t, where, [
    python("print('hello ' + 'world')"),
    python(`print(open('given.txt').read()); print(open(${JSON.stringify(where.outside)}).read())`),
    python("print(open('/etc/passwd').read())"),
    python("import os; print('token', os.environ.get('MY_API_TOKEN'))"),
  ]);
  assert.ok(told.tools.has(RUN), [...told.tools].join(' '));
  assert.match(told.results[0]!.text, /hello world/);
  assert.match(told.results[1]!.text, /given/);
  assert.ok(!told.results[1]!.text.includes('of the host'));
  assert.ok(!told.results[2]!.text.includes(readFileSync('/etc/passwd', 'utf8').trim().split('\n').at(-1)!));
  assert.match(told.results[3]!.text, /token None/);
  assert.ok(!told.results[3]!.text.includes('s3cret'));
});

test('a policy of the query changes what the same code reaches and an override cannot widen it', { skip: noMcp }, async (t) => {
  const where = place(t);
  const host = await server(t);
  const open: SandboxPolicy = { net: { mode: 'allowlist', allow: [`127.0.0.1:${host.port}`] } };
  const visit = (path: string, more: Loose = {}) => python(`${host.probe(path)}print('arrived')`, more);
  const closed = await ask(t, where, [visit('/closed'), visit('/widened', { policyOverrides: { net: { mode: 'open' } } })]);
  assert.ok(closed.results.every((one) => !one.text.includes('arrived\n')), JSON.stringify(closed.results));
  assert.deepEqual(host.visits, []);
  await ask(t, where, [visit('/granted')], { sandboxPolicy: open });
  assert.deepEqual(host.visits, ['/granted']);
  const other = await server(t);
  const denied = await ask(t, where, [python(other.probe('/other'))], { sandboxPolicy: open });
  assert.match(denied.results[0]!.text, /403/);
  assert.deepEqual(other.visits, []);
});

test('an endless loop ends by the time limit and the model is told', { skip: noMcp }, async (t) => {
  const told = await ask(t, place(t), [python('while True: pass', { timeout: 1 }), python("print('still', 'here')")]);
  assert.match(told.results[0]!.text, /time limit|timed out/i);
  assert.match(told.results[1]!.text, /still here/);
});

test('a refusal reaches the model with its reason', { skip: noMcp }, async (t) => {
  const sandboxPolicy: SandboxPolicy = {
    commands: [{ deny: ['git', 'push'], why: 'nobody pushes', matches: ['git push'], rejects: ['git status'] }],
  };
  const told = await ask(t, place(t), [{ tool: RUN, input: { command: 'git push' } }, { tool: RUN, input: { command: 'git --version' } }], {
    sandboxPolicy,
  });
  assert.match(told.results[0]!.text, /nobody pushes/);
  assert.match(told.results[1]!.text, /git version/);
});

test('an upload to a file api of a model vendor is blocked', { skip: noMcp }, async (t) => {
  const host = await server(t);
  const upload = (url: string) =>
    python(`import urllib.request\nurllib.request.urlopen(urllib.request.Request('${url}', data=b'x'), timeout=5).read()\nprint('sent')`);
  const told = await ask(t, place(t), [upload(`http://127.0.0.1:${host.port}/v1/files`), upload('http://api.anthropic.com/v1/files')], {
    sandboxPolicy: { net: { mode: 'allowlist', allow: [`127.0.0.1:${host.port}`, 'api.anthropic.com'] } },
  });
  assert.deepEqual(host.visits, ['/v1/files']);
  assert.match(told.results[1]!.text, /403/);
  assert.match(told.results[1]!.text, /net\.stranger/);
  assert.ok(!told.results[1]!.text.includes('sent\n'));
});

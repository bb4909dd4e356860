// What a query of the Agent SDK is given, without starting one.

import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

import { BinaryNotFound, SANDBOX_TOOLS, judgeTool, sandboxOptions, sandboxQuery, sandboxTool } from '../src/index.js';
import { place } from './surroundings.js';

// Loosely typed on purpose: the Agent SDK need not be installed for these.
type Loose = Record<string, any>;
const prepared = (params: Loose): { options: Loose; dispose: () => void } => sandboxOptions(params as never) as never;

test('only approved tools are permitted and others are denied with what to do instead', () => {
  const approved = new Set([...SANDBOX_TOOLS, 'TodoWrite']);
  for (const name of [sandboxTool('sandboxed_code_run'), sandboxTool('sandboxed_code.run'), sandboxTool('files_read'), 'TodoWrite']) {
    assert.deepEqual(judgeTool(name, approved), { allowed: true }, name);
  }
  const hostile = [
    'Bash',
    'bash',
    'Bash ',
    'Read',
    'WebFetch',
    'Task',
    'mcp__other__sandboxed_code_run',
    'mcp__ringfence__',
    'mcp__ringfence__changes_apply',
    'mcp__ringfence__sandboxed_code_run2',
    '',
    'toString',
    '__proto__',
    undefined,
    null,
    7,
    {},
  ];
  for (const name of hostile) {
    const verdict = judgeTool(name, approved);
    assert.equal(verdict.allowed, false, String(name));
    assert.ok(!verdict.allowed && verdict.message.includes('mcp__ringfence__'), String(name));
  }
});

test('hook and canUseTool agree and the callers own check can only narrow', async (t) => {
  const { workspace } = place(t);
  const asked: string[] = [];
  const canUseTool = async (name: string) => {
    asked.push(name);
    return { behavior: 'deny', message: 'not today' };
  };
  const { options, dispose } = prepared({ workspace, options: { canUseTool } });
  t.after(dispose);
  const code = sandboxTool('sandboxed_code_run');
  const entry = options['hooks'].PreToolUse[0];
  assert.equal(entry.onFailure, 'block');
  assert.equal(entry.matcher, undefined);
  assert.deepEqual(await entry.hooks[0]({ tool_name: code }), { continue: true });
  const denied = await entry.hooks[0]({ tool_name: 'Bash' });
  assert.equal(denied.hookSpecificOutput.permissionDecision, 'deny');
  assert.match(denied.hookSpecificOutput.permissionDecisionReason, /sandboxed_code_run/);
  assert.equal((await options['canUseTool']('Bash', {}, {})).behavior, 'deny');
  assert.deepEqual(asked, []);
  assert.equal((await options['canUseTool'](code, {}, {})).message, 'not today');
  const plain = prepared({ workspace });
  assert.deepEqual(await plain.options['canUseTool'](code, { a: 1 }, {}), { behavior: 'allow', updatedInput: { a: 1 } });
});

test('a query has its own policy and only the tools of the sandbox', (t) => {
  const { workspace } = place(t);
  const { options, dispose } = prepared({ workspace, sandboxPolicy: { net: { mode: 'none' } }, approvedTools: ['TodoWrite'] });
  assert.deepEqual(options['tools'], ['TodoWrite']);
  assert.deepEqual(options['settingSources'], []);
  assert.equal(options['permissionMode'], 'default');
  assert.equal(options['strictMcpConfig'], true);
  assert.equal(options['verbatimPrompts'], true);
  const { command, args } = options['mcpServers'].ringfence;
  assert.equal(command, process.env['RINGFENCE_BIN']);
  assert.deepEqual(args.slice(0, 2), ['mcp', `--workspace=${workspace}`]);
  const file = args[2].replace('--policy=', '');
  assert.deepEqual(JSON.parse(readFileSync(file, 'utf8')), { version: 1, net: { mode: 'none' } });
  dispose();
  assert.ok(!existsSync(file));
  const other = prepared({ workspace, sandboxPolicy: '/some/policy.yaml' });
  assert.ok(other.options['mcpServers'].ringfence.args.includes('--policy=/some/policy.yaml'));
});

test('options that would lead around the sandbox are refused and harmless ones pass', (t) => {
  const { workspace } = place(t);
  const around: Loose[] = [
    { permissionMode: 'bypassPermissions' },
    { permissionMode: 'acceptEdits' },
    { permissionMode: 'auto' },
    { permissionMode: 'something-new' },
    { allowDangerouslySkipPermissions: true },
    { allowedTools: ['Bash'] },
    { permissionPromptToolName: 'mcp__x__y' },
    { permissionPrompts: 'none' },
    { extraArgs: { 'dangerously-skip-permissions': null } },
    { settings: { permissions: { allow: ['Bash(*)'] } } },
    { settingSources: ['project'] },
    { strictMcpConfig: false },
    { plugins: [] },
    { toolAliases: { x: 'Bash' } },
    { mcpServers: { ringfence: { command: 'evil' } } },
    { agents: { a: { description: 'a', prompt: 'b', permissionMode: 'bypassPermissions' } } },
    { somethingOfTomorrow: true },
  ];
  for (const options of around) {
    assert.throws(() => prepared({ workspace, options }), TypeError, JSON.stringify(options));
  }
  const harmless: Loose = { model: 'm', maxTurns: 3, permissionMode: 'plan', systemPrompt: 'x', settingSources: [], allowedTools: undefined };
  const { options } = prepared({ workspace, options: { ...harmless, mcpServers: { other: { command: 'x' } } } });
  assert.deepEqual([options['model'], options['maxTurns'], Object.keys(options['mcpServers'])], ['m', 3, ['other', 'ringfence']]);
});

test('messages pass through and the policy file is removed when they end, are left, or fail', async (t) => {
  const { workspace } = place(t);
  let file = '';
  const closed: string[] = [];
  const query = (fails: boolean) =>
    ((params: Loose) => {
      file = params['options'].mcpServers.ringfence.args[2].replace('--policy=', '');
      assert.ok(existsSync(file));
      const messages = (async function* () {
        yield { n: 1 };
        if (fails) throw new Error('the model is gone');
        yield { n: 2 };
      })();
      return Object.assign(messages, { close: () => closed.push(file) });
    }) as never;
  const begin = (fails: boolean) => sandboxQuery({ prompt: 'x', workspace, sandboxPolicy: {}, query: query(fails) } as never);

  const seen: unknown[] = [];
  for await (const message of begin(false)) seen.push(message);
  assert.deepEqual(seen, [{ n: 1 }, { n: 2 }]);
  assert.ok(!existsSync(file) && closed.pop() === file);
  for await (const message of begin(false)) {
    assert.ok(message);
    break;
  }
  assert.ok(!existsSync(file) && closed.pop() === file);
  await assert.rejects(async () => {
    for await (const message of begin(true)) assert.ok(message);
  }, /the model is gone/);
  assert.ok(!existsSync(file) && closed.pop() === file);
});

test('a query whose sandbox did not start is an error and not a query without tools', async (t) => {
  const { workspace } = place(t);
  const begin = (servers: unknown) =>
    sandboxQuery({
      prompt: 'x',
      workspace,
      query: (() =>
        Object.assign(
          (async function* () {
            yield { type: 'system', subtype: 'init', mcp_servers: servers };
            yield { type: 'result' };
          })(),
          { close: () => {} },
        )) as never,
    } as never);
  for (const servers of [[{ name: 'ringfence', status: 'failed' }], [{ name: 'other', status: 'connected' }], [], undefined]) {
    await assert.rejects(async () => {
      for await (const message of begin(servers)) assert.ok(message);
    }, /could not be started/);
  }
  let seen = 0;
  for await (const message of begin([{ name: 'ringfence', status: 'connected' }])) seen += message ? 1 : 0;
  assert.equal(seen, 2);
});

test('without the binary there is no query', (t) => {
  const { workspace } = place(t);
  assert.throws(() => sandboxQuery({ prompt: 'x', workspace, binary: '/nowhere/ringfence' } as never), BinaryNotFound);
});

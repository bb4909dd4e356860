// The real Claude Code in a project that `ringfence init` set up, against a scripted model on loopback. Nothing leaves this machine.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { model, type Model, type Step } from '../../sdk/typescript/tests/model.ts';
import { NOBODY_PUSHES, SECRET, asReadmeSays, didAll, fetched, missing, project, run, type Project } from './surroundings.ts';

const claude = fetched('@anthropic-ai', 'claude-agent-sdk-linux-x64', 'claude');
const skip = missing('Claude Code', claude);

const POLICY = `version: 1
fs:
  deny: ["**/.env"]
${NOBODY_PUSHES}`;

/** Lets the scripted model do its steps, and returns what it was told. */
async function ask(t: TestContext, where: Project, steps: Step[], flags: string[] = []): Promise<Model> {
  const scripted = await model(t, steps);
  const env = {
    ...where.env,
    ANTHROPIC_BASE_URL: scripted.url,
    ANTHROPIC_API_KEY: 'sk-made-up',
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    ENABLE_TOOL_SEARCH: 'false',
    IS_SANDBOX: '1',
  };
  const ended = await run(claude!, ['-p', 'go', '--output-format', 'json', ...flags], { cwd: where.work, env });
  didAll(ended, scripted.results, steps);
  return scripted;
}

/** The twin: the same agent without our hook, which asks nobody. */
const unhooked = (t: TestContext, where: Project, steps: Step[]): Promise<Model> => {
  rmSync(join(where.work, '.claude'), { recursive: true });
  return ask(t, where, steps, ['--permission-mode', 'bypassPermissions']);
};

const bash = (command: string, more: object = {}): Step => ({ tool: 'Bash', input: { command, description: 'x', ...more } });
const read = (file: string): Step => ({ tool: 'Read', input: { file_path: file } });

test('bash of claude code runs behind the wall and its files are there for read at once', { skip }, async (t) => {
  const where = project(t, ['claude-code'], POLICY);
  const probe = bash(`pwd; echo "token=[$HOST_VALUE]"; cat ${where.outside}; echo made > made.txt; echo done`);
  const steps = [probe, read(join(where.work, 'made.txt'))];
  const told = await ask(t, where, steps);
  assert.match(told.results[0]!.text, /token=\[\]/);
  assert.ok(told.results[0]!.text.includes(where.work) && told.results[0]!.text.includes('done'), told.results[0]!.text);
  assert.ok(!told.heard.includes(SECRET) && !told.heard.includes('of the host'));
  assert.match(told.results[1]!.text, /made/);
  assert.equal(readFileSync(join(where.work, 'made.txt'), 'utf8'), 'made\n');
  const bare = await unhooked(t, where, steps);
  assert.ok(bare.results[0]!.text.includes(SECRET) && bare.results[0]!.text.includes('of the host'), bare.results[0]!.text);
});

test('a denied command of claude code is refused and the model is told why', { skip }, async (t) => {
  const where = project(t, ['claude-code'], POLICY);
  const told = await ask(t, where, [bash('git push'), bash('git --version')]);
  assert.ok(told.results[0]!.isError);
  assert.match(told.results[0]!.text, /nobody pushes from here/);
  assert.match(told.results[1]!.text, /git version/);
});

test('claude code does not read a denied file and cannot leave the wall out', { skip }, async (t) => {
  const where = project(t, ['claude-code'], POLICY);
  const secrets = join(where.work, '.env');
  writeFileSync(secrets, 'KEY=hunter2\n');
  const around = bash('touch around', { dangerouslyDisableSandbox: true });
  const steps = [read(secrets), bash(`cat .env`), around];
  const told = await ask(t, where, steps);
  assert.ok(told.results.every((one) => one.isError), JSON.stringify(told.results));
  assert.match(told.results[0]!.text, /\.env/);
  assert.match(told.results[2]!.text, /dangerouslyDisableSandbox/);
  assert.ok(!told.heard.includes('hunter2') && !existsSync(join(where.work, 'around')));
  const bare = await unhooked(t, where, steps);
  assert.ok(bare.results[0]!.text.includes('hunter2') && bare.results[1]!.text.includes('hunter2'), JSON.stringify(bare.results));
  assert.ok(existsSync(join(where.work, 'around')));
});

test('a hook that cannot be started is a no for claude code', { skip }, async (t) => {
  const where = project(t, ['claude-code'], POLICY);
  const settings = join(where.work, '.claude', 'settings.json');
  writeFileSync(settings, readFileSync(settings, 'utf8').replaceAll(/"command": "[^"]*"/g, '"command": "/no/such/ringfence"'));
  const told = await ask(t, where, [bash('touch made.txt')], ['--permission-mode', 'bypassPermissions']);
  assert.ok(told.results[0]!.isError, JSON.stringify(told.results));
  assert.ok(!existsSync(join(where.work, 'made.txt')));
});

test('the commands of the readme add our server to claude code', { skip }, async (t) => {
  const where = project(t, []);
  await asReadmeSays('claude', claude!, where);
  const tool = 'mcp__ringfence__sandboxed_code_run';
  const told = await ask(t, where, [{ tool, input: { command: 'echo $((6 * 7))' } }], ['--allowedTools', tool]);
  assert.match(told.results[0]!.text, /42/);
});

test('claude code starts our server from the projects settings and runs code by it', { skip }, async (t) => {
  const where = project(t, ['claude-code'], POLICY);
  // What a person answers when Claude Code asks about the server of a project.
  writeFileSync(join(where.work, '.claude', 'settings.local.json'), '{"enabledMcpjsonServers": ["ringfence"]}');
  const tool = 'mcp__ringfence__sandboxed_code_run';
  const code = "import os; print(6 * 7, os.environ.get('HOST_VALUE'))";
  const told = await ask(t, where, [{ tool, input: { code, language: 'python' } }], ['--allowedTools', tool]);
  assert.match(told.results[0]!.text, /42 None/);
});

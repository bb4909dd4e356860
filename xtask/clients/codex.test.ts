// The real Codex in a project that `ringfence init` set up, against a scripted model on loopback. Nothing leaves this machine.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { model, type Model, type Step } from './responses.ts';
import { NOBODY_PUSHES, SECRET, asReadmeSays, didAll, fetched, missing, project, run, type Project } from './surroundings.ts';

const codex = fetched('@openai', 'codex-linux-x64', 'vendor', 'x86_64-unknown-linux-musl', 'bin', 'codex');
const skip = missing('Codex', codex);

const POLICY = `version: 1
${NOBODY_PUSHES}`;

/** What follows in a file of settings was there before. */
const MARK = '# before\n';

/** Lets the scripted model do its steps, and returns what it was told. */
async function ask(t: TestContext, where: Project, steps: Step[]): Promise<Model> {
  const scripted = await model(t, steps);
  const settings = join(where.home, '.codex');
  mkdirSync(settings, { recursive: true });
  const file = join(settings, 'config.toml');
  const there = existsSync(file) ? readFileSync(file, 'utf8').split(MARK).at(-1) : '';
  writeFileSync(
    file,
    `model = "scripted"
model_provider = "scripted"
[model_providers.scripted]
name = "scripted"
base_url = "${scripted.url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
[projects."${where.work}"]
trust_level = "trusted"
${MARK}${there}`,
  );
  // The last flag is for a person who looked at the hooks; its own sandbox is not what is tested.
  const flags = ['--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', '--dangerously-bypass-hook-trust'];
  const ended = await run(codex!, ['exec', '--json', ...flags, 'go'], { cwd: where.work, env: where.env });
  didAll(ended, scripted.results, steps);
  return scripted;
}

const exec = (cmd: string): Step => ({ tool: 'exec_command', input: { cmd } });

test('a command of codex runs behind the wall and its files are there at once', { skip }, async (t) => {
  const where = project(t, ['codex'], POLICY);
  const steps = [exec(`echo "token=[$HOST_VALUE]"; cat ${where.outside}; echo made > made.txt; echo done`)];
  const told = await ask(t, where, steps);
  assert.match(told.results[0]!, /token=\[\]/);
  assert.match(told.results[0]!, /done/);
  assert.ok(!told.heard.includes(SECRET) && !told.heard.includes('of the host'));
  assert.equal(readFileSync(join(where.work, 'made.txt'), 'utf8'), 'made\n');
  // The twin: the same agent without our hook.
  rmSync(join(where.work, '.codex', 'hooks.json'));
  const bare = await ask(t, where, steps);
  assert.ok(bare.results[0]!.includes(SECRET) && bare.results[0]!.includes('of the host'), bare.results[0]);
});

test('a denied command of codex is refused and the model is told why', { skip }, async (t) => {
  const where = project(t, ['codex'], POLICY);
  const told = await ask(t, where, [exec('git push; touch made.txt'), exec('git --version')]);
  assert.match(told.results[0]!, /nobody pushes from here/);
  assert.ok(!existsSync(join(where.work, 'made.txt')));
  assert.match(told.results[1]!, /git version/);
});

test('the commands of the readme add our server to codex', { skip }, async (t) => {
  const where = project(t, []);
  await asReadmeSays('codex', codex!, where);
  const told = await ask(t, where, [{ tool: 'sandboxed_code_run', namespace: 'mcp__ringfence', input: { command: 'echo $((6 * 7))' } }]);
  assert.match(told.results[0]!, /42/);
});

test('codex starts our server from the projects settings and runs code by it', { skip }, async (t) => {
  const where = project(t, ['codex'], POLICY);
  const run = (input: Record<string, unknown>): Step => ({ tool: 'sandboxed_code_run', namespace: 'mcp__ringfence', input });
  const code = "import os; print(6 * 7, os.environ.get('HOST_VALUE'))";
  const told = await ask(t, where, [run({ code, language: 'python' }), run({ command: 'git push' })]);
  assert.ok(told.tools.has('mcp__ringfence.sandboxed_code_run'), [...told.tools].join(' '));
  assert.match(told.results[0]!, /42 None/);
  assert.match(told.results[1]!, /nobody pushes from here/);
});

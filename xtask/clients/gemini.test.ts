// The real Gemini CLI in a project that `ringfence init` set up, against a scripted model on loopback. Nothing leaves this machine.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { model, type Model, type Step } from './generate.ts';
import { NOBODY_PUSHES, SECRET, didAll, fetched, missing, project, run, type Project } from './surroundings.ts';

const gemini = fetched('@google', 'gemini-cli', 'bundle', 'gemini.js');
const skip = missing('Gemini CLI', gemini);

const POLICY = `version: 1
fs:
  deny: ["**/.env"]
${NOBODY_PUSHES}`;

/** Lets the scripted model do its steps, and returns what it was told. */
async function ask(t: TestContext, where: Project, steps: Step[]): Promise<Model> {
  const scripted = await model(t, steps);
  mkdirSync(join(where.home, '.gemini'), { recursive: true });
  const settings = { security: { auth: { selectedType: 'gemini-api-key' } }, privacy: { usageStatisticsEnabled: false } };
  writeFileSync(join(where.home, '.gemini', 'settings.json'), JSON.stringify(settings));
  // Without trust in the folder it would read neither the hooks nor the servers of the project.
  const env = { ...where.env, GEMINI_API_KEY: 'made-up', GOOGLE_GEMINI_BASE_URL: scripted.url, GEMINI_CLI_TRUST_WORKSPACE: 'true' };
  const flags = ['-p', 'go', '--output-format', 'json', '-m', 'gemini-2.5-flash', '--approval-mode', 'yolo'];
  const ended = await run(process.execPath, [gemini!, ...flags], { cwd: where.work, env });
  didAll(ended, scripted.results, steps);
  return scripted;
}

const shell = (command: string): Step => ({ tool: 'run_shell_command', input: { command, description: 'x' } });
const read = (file: string): Step => ({ tool: 'read_file', input: { file_path: file } });

test('a command of gemini runs behind the wall and its files are there at once', { skip }, async (t) => {
  const where = project(t, ['gemini'], POLICY);
  const probe = shell(`echo "token=[$HOST_VALUE]"; cat ${where.outside}; echo made > made.txt; echo done`);
  const steps = [probe, read(join(where.work, 'made.txt'))];
  const told = await ask(t, where, steps);
  assert.match(told.results[0]!, /token=\[\]/);
  assert.match(told.results[0]!, /done/);
  assert.ok(!told.heard.includes(SECRET) && !told.heard.includes('of the host'));
  assert.match(told.results[1]!, /made/);
  assert.equal(readFileSync(join(where.work, 'made.txt'), 'utf8'), 'made\n');
  // The twin: the same agent without our hook.
  rmSync(join(where.work, '.gemini'), { recursive: true });
  const bare = await ask(t, where, steps);
  assert.ok(bare.results[0]!.includes(SECRET) && bare.results[0]!.includes('of the host'), bare.results[0]);
});

test('what is denied to gemini is refused and the model is told why', { skip }, async (t) => {
  const where = project(t, ['gemini'], POLICY);
  writeFileSync(join(where.work, '.env'), 'KEY=hunter2\n');
  const told = await ask(t, where, [shell('git push; touch made.txt'), read(join(where.work, '.env')), shell('git --version')]);
  assert.match(told.results[0]!, /nobody pushes from here/);
  assert.ok(!existsSync(join(where.work, 'made.txt')));
  assert.match(told.results[1]!, /\.env/);
  assert.ok(!told.heard.includes('hunter2'));
  assert.match(told.results[2]!, /git version/);
});

test('gemini starts our server from the projects settings and runs code by it', { skip }, async (t) => {
  const where = project(t, ['gemini'], POLICY);
  const code = "import os; print(6 * 7, os.environ.get('HOST_VALUE'))";
  const told = await ask(t, where, [{ tool: 'mcp_ringfence_sandboxed_code_run', input: { code, language: 'python' } }]);
  assert.match(told.results[0]!, /42 None/);
});

// What the tests with real clients stand on: a project that `ringfence init` set up, a file beside it, and a home of its own.

import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import type { TestContext } from 'node:test';

/** Longer than any client takes, and shorter than anybody waits. */
const PATIENCE_MS = 60_000;
/** In the environment of every client. */
export const SECRET = 's3cret-of-the-host';

/** What every client is kept from, as a part of a policy. */
export const NOBODY_PUSHES = `commands:
  - deny: ["git", "push"]
    why: "nobody pushes from here"
    matches: ["git push"]
    rejects: ["git status"]
`;

export interface Project {
  work: string;
  home: string;
  /** Beside the project: a file of the host that nothing inside may see. */
  outside: string;
  env: Record<string, string>;
}

export interface Ended {
  code: number | null;
  stdout: string;
  stderr: string;
}

/** The binary that is tested. */
export const binary = given('RINGFENCE_BIN');

/** A file of a fetched package; undefined where it could not be fetched, which is said loudly. */
export function fetched(...path: string[]): string | undefined {
  const file = join(given('RINGFENCE_TEST_PACKAGES'), 'node_modules', ...path);
  return existsSync(file) ? file : undefined;
}

/** Why tests of `name` are skipped, or false. */
export function missing(name: string, file: string | undefined): string | false {
  return file === undefined && `${name} could not be fetched`;
}

export function project(t: TestContext, agents: string[], policy?: string): Project {
  const folder = realpathSync(mkdtempSync(join(tmpdir(), 'ringfence-client-')));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const [work, home, bin, tmp] = ['work', 'home', 'bin', 'tmp'].map((name) => {
    mkdirSync(join(folder, name));
    return join(folder, name);
  }) as [string, string, string, string];
  const outside = join(folder, 'outside.txt');
  writeFileSync(outside, 'of the host\n');
  symlinkSync(binary, join(bin, 'ringfence'));
  const path = [bin, dirname(process.execPath), process.env['PATH'] ?? ''].join(delimiter);
  // The second is for Claude Code, which does not heed the first.
  const env = { PATH: path, HOME: home, TMPDIR: tmp, CLAUDE_CODE_TMPDIR: tmp, LANG: 'C.UTF-8', HOST_VALUE: SECRET };
  if (policy !== undefined) writeFileSync(join(work, 'sandbox.policy.yaml'), policy);
  if (agents.length > 0) {
    const words = ['init', '--yes', ...agents.flatMap((agent) => ['--agent', agent])];
    const set = spawnSync(binary, words, { cwd: work, env, encoding: 'utf8' });
    assert.equal(set.status, 0, set.stdout + set.stderr);
  }
  return { work, home, outside, env };
}

/** Runs a client to its end. */
export async function run(program: string, args: string[], options: { cwd: string; env: Record<string, string> }): Promise<Ended> {
  const child = spawn(program, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'], timeout: PATIENCE_MS, killSignal: 'SIGKILL' });
  const ended: Ended = { code: null, stdout: '', stderr: '' };
  child.stdout.on('data', (piece: Buffer) => (ended.stdout += piece.toString()));
  child.stderr.on('data', (piece: Buffer) => (ended.stderr += piece.toString()));
  ended.code = await new Promise<number | null>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  return ended;
}

/** Fails where a client failed, or left out a step of its model. */
export function didAll(ended: Ended, results: unknown[], steps: unknown[]): void {
  assert.equal(ended.code, 0, ended.stdout + ended.stderr);
  assert.equal(results.length, steps.length, ended.stdout + ended.stderr);
}

/** Runs the README's own line for this agent. */
export async function asReadmeSays(agent: string, program: string, where: Project): Promise<void> {
  const readme = readFileSync(join(import.meta.dirname, '..', '..', 'README.md'), 'utf8');
  const line = readme.split('\n').find((one) => one.startsWith(`${agent} mcp add `));
  assert.ok(line, `README.md has no line for ${agent}`);
  const added = await run(program, line.split(' ').slice(1), { cwd: where.work, env: where.env });
  assert.equal(added.code, 0, added.stdout + added.stderr);
}

function given(name: string): string {
  const value = process.env[name];
  assert.ok(value, `${name} is not set; \`cargo xtask test --only build,clients\` sets it`);
  return value;
}

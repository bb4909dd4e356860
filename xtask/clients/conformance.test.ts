// The conformance suite of the protocol's authors against our server over HTTP, for both versions.
//
// What cannot hold for a server of our kind is listed in conformance-VERSION.yaml, each with its reason. Something that does not hold and
// is not listed is a failure here, and so is something listed that holds or is not looked at any more.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';

import { front, serve } from './server.ts';
import { fetched, missing, project, run } from './surroundings.ts';

const suite = fetched('@modelcontextprotocol', 'conformance', 'dist', 'index.js');
const skip = missing('the MCP conformance suite', suite);

interface Check {
  id: string;
  status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'SKIPPED' | 'INFO';
  errorMessage?: string;
}

async function conforms(t: TestContext, version: string): Promise<void> {
  const where = project(t, []);
  const url = await front(t, await serve(t, where));
  const results = join(where.home, 'results');
  const words = [suite!, 'server', '--url', url, '--requirements', version, '--output-dir', results];
  const ended = await run(process.execPath, words, { cwd: where.work, env: where.env });
  assert.match(ended.stdout, /Total: \d+ passed/, ended.stdout + ended.stderr);

  const found = new Map<string, string>();
  let held = 0;
  for (const folder of readdirSync(results)) {
    // `server-SCENARIO-TIME`
    const scenario = folder.replace(/^server-/, '').replace(/-\d{4}-\d\d-\d\dT[\d-]+Z$/, '');
    for (const check of JSON.parse(readFileSync(join(results, folder, 'checks.json'), 'utf8')) as Check[]) {
      if (check.status === 'SUCCESS') held += 1;
      else if (check.status !== 'SKIPPED' && check.status !== 'INFO') found.set(`${scenario}:${check.id}`, check.errorMessage ?? '');
    }
  }
  const list = readFileSync(join(import.meta.dirname, `conformance-${version}.yaml`), 'utf8');
  const listed = new Set([...list.matchAll(/^  - (\S+)$/gm)].map(([, name]) => name!));
  const unlisted = [...found].filter(([name]) => !listed.has(name));
  const stale = [...listed].filter((name) => !found.has(name));
  assert.deepEqual({ unlisted, stale }, { unlisted: [], stale: [] });
  assert.ok(held >= 40, `only ${held} checks were made`);
}

test('our server conforms to 2025-11-25 but for what is listed with its reason', { skip }, (t) => conforms(t, '2025-11-25'));

test('our server conforms to 2026-07-28 but for what is listed with its reason', { skip }, (t) => conforms(t, '2026-07-28'));

// What tests stand on: a workspace, a server of the host whose visitors are counted, and a ledger of our own.

import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';

assert.ok(process.env['RINGFENCE_BIN'], 'set RINGFENCE_BIN to the binary that is to be tested');
for (const name of Object.keys(process.env)) {
  if (name.startsWith('RINGFENCE_') && name !== 'RINGFENCE_BIN') delete process.env[name];
}
const own = mkdtempSync(join(tmpdir(), 'ringfence-sdk-tests-'));
process.on('exit', () => rmSync(own, { recursive: true, force: true }));
process.env['RINGFENCE_STATE_DIR'] = join(own, 'state');
process.env['RINGFENCE_CONFIG_DIR'] = join(own, 'config');

export interface Place {
  workspace: string;
  /** Beside the workspace: a file of the host that nobody inside may see or change. */
  outside: string;
  /** An empty folder of the host. */
  home: string;
}

export function place(t: TestContext): Place {
  const folder = mkdtempSync(join(tmpdir(), 'ringfence-sdk-workspace-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const made = { workspace: join(folder, 'workspace'), outside: join(folder, 'outside.txt'), home: join(folder, 'home') };
  mkdirSync(made.workspace);
  mkdirSync(made.home);
  writeFileSync(made.outside, 'of the host\n');
  return made;
}

/** A program that says what it is told to. */
export function script(t: TestContext, words: string): string {
  const path = join(place(t).home, 'said');
  writeFileSync(path, `#!/bin/sh\n${words}\n`);
  chmodSync(path, 0o755);
  return path;
}

export interface Visited {
  port: number;
  /** What arrived is the proof, not what a program says about it. */
  visits: string[];
  /** Python code that visits it. */
  probe(path: string): string;
}

export async function server(t: TestContext): Promise<Visited> {
  const visits: string[] = [];
  const made = createServer((request, response) => {
    visits.push(request.url ?? '');
    request.resume();
    response.end('ok');
  });
  await new Promise<void>((resolve) => made.listen(0, '127.0.0.1', resolve));
  t.after(() => {
    made.closeAllConnections();
    made.close();
  });
  const { port } = made.address() as AddressInfo;
  const probe = (path: string) => `import urllib.request\nurllib.request.urlopen('http://127.0.0.1:${port}${path}', timeout=5).read()\n`;
  return { port, visits, probe };
}

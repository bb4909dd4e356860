// The MCP inspector, as a client that somebody else wrote.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { serve } from './server.ts';
import { binary, fetched, missing, project, run, type Project } from './surroundings.ts';

const inspector = fetched('@modelcontextprotocol', 'inspector', 'clients', 'launcher', 'build', 'index.js');
const skip = missing('the MCP inspector', inspector);

async function inspect(where: Project, words: string[]): Promise<{ tools?: { name: string }[]; structuredContent?: { stdout: string }; isError?: boolean }> {
  const ended = await run(process.execPath, [inspector!, '--cli', ...words], { cwd: where.work, env: where.env });
  assert.equal(ended.code, 0, ended.stdout + ended.stderr);
  return JSON.parse(ended.stdout);
}

test('the inspector lists our tools and runs code over both transports', { skip }, async (t) => {
  const where = project(t, []);
  const server = await serve(t, where);
  const call = ['--method', 'tools/call', '--tool-name', 'sandboxed_code_run', '--tool-arg', 'code=print(6 * 7)', 'language=python'];
  const ways = [
    [binary, 'mcp'],
    [server.url, '--header', `Authorization: Bearer ${server.token}`],
  ];
  for (const way of ways) {
    const listed = await inspect(where, [...way, '--method', 'tools/list', '--strict']);
    assert.ok(listed.tools?.some((tool) => tool.name === 'sandboxed_code_run'), JSON.stringify(listed));
    const called = await inspect(where, [...way, ...call]);
    assert.equal(called.structuredContent?.stdout, '42\n', JSON.stringify(called));
  }
  // And a client without the token gets nothing.
  const refused = await run(process.execPath, [inspector!, '--cli', server.url, '--method', 'tools/list'], { cwd: where.work, env: where.env });
  assert.notEqual(refused.code, 0);
});

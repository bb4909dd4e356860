// The scenarios of the sandbox, through the executor and through sessions. Each refusal has its twin that succeeds.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { Refused, Session, getSandboxExecutor, run, runCode } from '../src/index.js';
import { place, server } from './surroundings.js';

test('hello world runs under the default policy and every guarantee holds', async (t) => {
  const { workspace } = place(t);
  const { exitCode, stdout, stderr, timedOut, outcome } = await getSandboxExecutor({ workdir: workspace }).execute('echo', ['hello world']);
  assert.deepEqual({ exitCode, stdout, stderr, timedOut }, { exitCode: 0, stdout: 'hello world\n', stderr: '', timedOut: false });
  assert.deepEqual(outcome.notEnforced, []);
  assert.ok(outcome.enforced.some((one) => one.guarantee === 'net.none'));
});

test('the workspace is read and written and the hosts files are not seen', async (t) => {
  const { workspace, outside } = place(t);
  writeFileSync(join(workspace, 'given.txt'), 'given');
  const session = await Session.start({ workspace });
  t.after(() => session.stop());
  assert.equal((await session.execCode('python', "open('made.txt', 'w').write(open('given.txt').read() + ' and made')")).exitCode, 0);
  assert.equal((await session.exec(['cat', '/workspace/made.txt'])).stdout, 'given and made');
  const hidden = await session.exec(['cat', outside]);
  assert.notEqual(hidden.exitCode, 0);
  assert.ok(!hidden.stdout.includes('of the host'));
  assert.notEqual((await session.exec(['cat', '/etc/passwd'])).stdout, readFileSync('/etc/passwd', 'utf8'));
  // The twin: without a wall the same probe sees both.
  const bare = await run(['cat', outside, '/etc/passwd'], { workspace, backend: 'none' });
  assert.equal(bare.stdout, 'of the host\n' + readFileSync('/etc/passwd', 'utf8'));
});

test('the network is off and the same probe arrives without a wall', async (t) => {
  const { workspace } = place(t);
  const host = await server(t);
  const walled = await getSandboxExecutor({ workdir: workspace }).execute('python3', ['-c', host.probe('/walled')]);
  assert.notEqual(walled.exitCode, 0);
  await run(['python3', '-c', host.probe('/bare')], { workspace, backend: 'none' });
  assert.deepEqual(host.visits, ['/bare']);
});

test('networkEnabled reaches what the policy lists and nothing else and opens nothing by itself', async (t) => {
  const { workspace } = place(t);
  const [listed, other] = [await server(t), await server(t)];
  const policy = { net: { mode: 'allowlist' as const, allow: [`127.0.0.1:${listed.port}`] } };
  const executor = getSandboxExecutor({ workdir: workspace, policy, networkEnabled: true });
  assert.equal((await executor.execute('python3', ['-c', listed.probe('/listed')])).exitCode, 0);
  const denied = await executor.execute('python3', ['-c', other.probe('/other')]);
  assert.match(denied.stderr, /403/);
  assert.deepEqual(denied.outcome.network?.map((one) => [one.port, one.allowed]), [[other.port, false]]);
  // The policy alone is not enough: the network is off unless it is asked for.
  await getSandboxExecutor({ workdir: workspace, policy }).execute('python3', ['-c', listed.probe('/not-asked')]);
  // And asking is not enough without the policy: a person has to write it there.
  await assert.rejects(
    getSandboxExecutor({ workdir: workspace, networkEnabled: true }).execute('python3', ['-c', listed.probe('/not-listed')]),
    (error) => error instanceof Refused && error.refusal.rule === 'overrides.narrow-only' && /policy/.test(error.hint ?? ''),
  );
  assert.deepEqual([listed.visits, other.visits], [['/listed'], []]);
});

test('a policy of open is not opened by networkEnabled', async (t) => {
  const { workspace } = place(t);
  const policy = { net: { mode: 'open' as const } };
  const { outcome } = await getSandboxExecutor({ workdir: workspace, policy, networkEnabled: true }).execute('true');
  assert.deepEqual((outcome.effectivePolicy['net'] as { mode: string; allow: unknown[] }).mode, 'allowlist');
});

test('an override narrows and cannot widen', async (t) => {
  const { workspace } = place(t);
  const policy = { proc: { memory: '512MiB', max_timeout: '60s' } };
  const narrowed = await getSandboxExecutor({ workdir: workspace, policy, memoryLimit: '256m', timeout: 5000 }).execute('true');
  assert.equal((narrowed.outcome.effectivePolicy['proc'] as { memory: string }).memory, '256MiB');
  for (const wider of [{ memoryLimit: '1GiB' }, { timeout: 61_000 }]) {
    await assert.rejects(
      getSandboxExecutor({ workdir: workspace, policy, ...wider }).execute('true'),
      (error) => error instanceof Refused && error.refusal.rule === 'overrides.narrow-only' && (error.advice ?? '') !== '',
    );
  }
  await assert.rejects(Session.start({ workspace, network: 'allowlist' }), Refused);
  await assert.rejects(Session.start({ workspace, allowHosts: ['example.org'] }), Refused);
});

test('an endless loop ends by the time limit with status and reason', async (t) => {
  const { workspace } = place(t);
  const executor = getSandboxExecutor({ workdir: workspace, timeout: 1000 });
  const endless = await executor.execute('python3', ['-c', "print('begun', flush=True)\nwhile True: pass"]);
  assert.deepEqual([endless.timedOut, endless.exitCode, endless.stdout], [true, 124, 'begun\n']);
  assert.deepEqual(endless.outcome.violations.map((one) => one.rule), ['time.limit']);
  assert.equal((await executor.execute('true')).timedOut, false);
});

test('a secret of the hosts environment is undefined inside', async (t) => {
  const { workspace } = place(t);
  process.env['MY_API_TOKEN'] = 's3cret';
  t.after(() => delete process.env['MY_API_TOKEN']);
  const code = 'console.log(process.env.MY_API_TOKEN, process.env.MEANT)';
  const outcome = await runCode('javascript', code, { workspace, env: { MEANT: 'yes' } });
  assert.equal(outcome.stdout, 'undefined yes\n');
  assert.ok(outcome.envWithheld.includes('MY_API_TOKEN'));
  const bare = await run(['node', '-e', code], { workspace, backend: 'none' });
  assert.match(bare.stdout, /s3cret/);
});

test('an upload to a file api of a model vendor is blocked', async (t) => {
  const { workspace } = place(t);
  const host = await server(t);
  // Naming the vendor is not enough: whoever has a key can read what is sent there.
  const policy = { net: { mode: 'allowlist' as const, allow: [`127.0.0.1:${host.port}`, 'api.anthropic.com'] } };
  const session = await Session.start({ workspace, policy });
  t.after(() => session.stop());
  const upload = (url: string) =>
    `import urllib.request\nurllib.request.urlopen(urllib.request.Request('${url}', data=b'of the workspace'), timeout=5).read()\n`;
  assert.equal((await session.execCode('python', upload(`http://127.0.0.1:${host.port}/v1/files`))).exitCode, 0);
  assert.deepEqual(host.visits, ['/v1/files']);
  const outcome = await session.execCode('python', upload('http://api.anthropic.com/v1/files'));
  assert.deepEqual(outcome.network?.map((one) => [one.host, one.allowed]), [['api.anthropic.com', false]]);
  assert.match(outcome.violations[0]?.message ?? '', /net\.stranger/);
  assert.match(outcome.stderr, /403/);
});

// How the binary is called: quoting, caps, a missing binary, many at once, and answers that make no sense.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

import { BinaryNotFound, CouldNotRun, ProtocolError, Refused, Session, findBinary, getSandboxExecutor, run, runCode } from '../src/index.js';
import { place, script } from './surroundings.js';

/** Words that a careless caller would turn into flags, quotes or shell. */
const ODD = ['--json', '--', '-x', '--backend=none', '', ' ', 'a b', "'", '"', '$HOME', '`id`', '\\', '*', '\n', 'é☃', 'a=b', ';ls'];

test('odd words arrive as they are', async (t) => {
  const { workspace } = place(t);
  const { stdout } = await getSandboxExecutor({ workdir: workspace }).execute('python3', [
    '-c',
    'import sys, json; print(json.dumps(sys.argv[1:]))',
    ...ODD,
  ]);
  assert.deepEqual(JSON.parse(stdout), ODD);
});

test('nothing that a model says becomes a flag', async (t) => {
  const { workspace } = place(t);
  const executor = getSandboxExecutor({ workdir: workspace });
  for (const cmd of ['--backend=none', '--help', '--version', '--']) {
    assert.deepEqual((await executor.execute(cmd, ['id'])).exitCode, 127, cmd);
  }
  for (const line of ['--backend=none', '--help', '-V']) {
    const outcome = await run(line, { workspace });
    assert.deepEqual([outcome.backend, outcome.exitCode === 0], ['native', false], line);
  }
  assert.equal((await run('echo --help', { workspace })).stdout, '--help\n');
  // Nor one of the shell inside: what was judged is a command, and is run as one.
  for (const line of ['-s', '+s', '-c id']) {
    assert.equal((await run(line, { workspace, stdin: 'echo executed' })).exitCode, 127, line);
  }
  assert.equal((await run(['cat'], { workspace, stdin: 'passed on' })).stdout, 'passed on');
});

test('long code and input pass and a word that is too long is told', async (t) => {
  const { workspace } = place(t);
  assert.equal((await runCode('python', `print(len('${'x'.repeat(300_000)}'))`, { workspace })).stdout, '300000\n');
  assert.equal((await run(['wc', '-c'], { workspace, stdin: 'x'.repeat(300_000) })).stdout.trim(), '300000');
  await assert.rejects(run(['echo', 'x'.repeat(300_000)], { workspace }), (error) => error instanceof CouldNotRun && /file/.test(error.advice ?? ''));
  await assert.rejects(run(['echo', 'a\0b'], { workspace }), CouldNotRun);
});

test('output is capped and keeps its head and tail', async (t) => {
  const { workspace } = place(t);
  const capped = await run('seq 200000', { workspace, output: '4KiB' });
  assert.ok(capped.outputTruncated && capped.stdout.length < 6000);
  assert.ok(capped.stdout.startsWith('1\n') && capped.stdout.endsWith('200000\n'));
  assert.equal((await run('seq 20', { workspace, output: '4KiB' })).outputTruncated, false);
  assert.equal((await run(['printf', '\\377\\000'], { workspace })).stdoutBase64, '/wA=');
});

test('a binary that says nonsense or far too much is never a success', async (t) => {
  const { workspace } = place(t);
  const nonsense = ['true', 'echo hello', "echo '{}'", "echo '[]'", `echo '{"status":"exited","exitCode":0}'`, 'head -c 80000000 /dev/zero'];
  for (const words of nonsense) {
    await assert.rejects(
      run('true', { workspace, binary: script(t, words) }),
      (error) => error instanceof ProtocolError || error instanceof CouldNotRun,
      words,
    );
  }
});

test('a missing binary says what to do and nothing is run', async (t) => {
  const { workspace, home } = place(t);
  const { RINGFENCE_BIN: real, PATH: path } = process.env;
  t.after(() => Object.assign(process.env, { RINGFENCE_BIN: real, PATH: path }));
  process.env['RINGFENCE_BIN'] = '/nowhere/ringfence';
  process.env['PATH'] = dirname(real!);
  // One that was named and is not there is not replaced by another.
  await assert.rejects(run('true', { workspace }), (error) => error instanceof BinaryNotFound && /RINGFENCE_BIN/.test(error.message));
  assert.equal(findBinary(real), real);
  process.env['RINGFENCE_BIN'] = '';
  assert.throws(() => findBinary(), BinaryNotFound);
  delete process.env['RINGFENCE_BIN'];
  assert.ok(findBinary().endsWith('/ringfence'));
  process.env['PATH'] = `${home}::`;
  await assert.rejects(Session.start({ workspace }), (error) => error instanceof BinaryNotFound && /install/.test(error.hint ?? ''));
});

test('many runs at once keep their answers apart', async (t) => {
  const { workspace } = place(t);
  const session = await Session.start({ workspace });
  t.after(() => session.stop());
  const numbers = Array.from({ length: 16 }, (_, n) => n);
  const shared = await Promise.all(numbers.map((n) => session.exec(['echo', String(n)])));
  assert.deepEqual(shared.map((one) => one.stdout), numbers.map((n) => `${n}\n`));
  const alone = await Promise.all(numbers.slice(0, 8).map((n) => run(`echo ${n} > mine; cat mine; ls | wc -l`, { workspace })));
  assert.deepEqual(alone.map((one) => one.stdout), numbers.slice(0, 8).map((n) => `${n}\n1\n`));
});

test('a run that is aborted ends its program', async (t) => {
  const { workspace } = place(t);
  const session = await Session.start({ workspace });
  t.after(() => session.stop());
  const begun = Date.now();
  const outcome = await session.exec(['sleep', '77'], { signal: AbortSignal.timeout(1000), timeout: '60s' });
  assert.ok(Date.now() - begun < 30_000);
  assert.equal(outcome.status, 'cancelled');
  assert.equal((await session.exec("ps ax | grep -c 'slee[p] 77'")).stdout, '0\n');
  await assert.rejects(session.exec('true', { signal: AbortSignal.abort() }));
});

test('changes wait and are applied but not what the host would execute', async (t) => {
  const { workspace } = place(t);
  writeFileSync(join(workspace, 'install.sh'), 'mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit\n');
  const session = await Session.start({ workspace });
  await session.exec('echo made > made.txt');
  assert.equal((await session.exec(['sh', 'install.sh'])).exitCode, 0);
  await assert.rejects(session.changes(), CouldNotRun);
  await session.stop();
  assert.ok(!existsSync(join(workspace, 'made.txt')));
  assert.ok(((await session.changes())?.['changes'] as { path: string }[]).some((one) => one.path === 'made.txt'));
  const applied = await session.apply();
  assert.equal(readFileSync(join(workspace, 'made.txt'), 'utf8'), 'made\n');
  assert.ok(applied.left.some((one) => one.path === '.git/hooks/pre-commit'));
  assert.ok(!existsSync(join(workspace, '.git')));
  await assert.rejects(session.exec('true'), CouldNotRun);
  await session.stop();
});

test('a refusal carries its rule and advice and a policy file is removed', async (t) => {
  const { workspace } = place(t);
  const policy = { commands: [{ deny: ['git', 'push'], why: 'nobody pushes', matches: ['git push'], rejects: ['git status'] }] };
  const session = await Session.start({ workspace, policy });
  t.after(() => session.stop());
  await assert.rejects(
    session.exec(['git', 'push']),
    (error) => error instanceof Refused && /nobody pushes/.test(error.message) && (error.advice ?? '') !== '' && error.outcome !== undefined,
  );
  assert.equal((await session.exec(['git', '--version'])).exitCode, 0);
  assert.deepEqual(readdirSync(tmpdir()).filter((name) => name.startsWith('ringfence-policy-') && ownFile(name)), []);
});

test('a mode that is no wall has to be accepted and is loud', async (t) => {
  const { workspace } = place(t);
  assert.throws(() => getSandboxExecutor({ mode: 'none', workdir: workspace }), /readOnlyRoot: false/);
  const warned = new Promise<Error>((resolve) => process.once('warning', resolve));
  const bare = getSandboxExecutor({ mode: 'none', workdir: workspace, readOnlyRoot: false });
  assert.equal((await warned).name, 'NotSandboxed');
  assert.ok((await bare.execute('true')).outcome.notEnforced.includes('fs.confined'));
});

test('the system cannot be written behind a wall and could be without', async (t) => {
  const { workspace, home } = place(t);
  const target = join(home, 'written');
  const words = ['-c', `open(${JSON.stringify(target)}, 'w').write('x')`];
  for (const readOnlyRoot of [true, false]) {
    assert.notEqual((await getSandboxExecutor({ workdir: workspace, readOnlyRoot }).execute('python3', words)).exitCode, 0);
    assert.ok(!existsSync(target));
  }
  await getSandboxExecutor({ mode: 'none', workdir: workspace, readOnlyRoot: false }).execute('python3', words);
  assert.ok(existsSync(target));
});

test('values that make no sense are told before anything runs', async (t) => {
  const { workspace } = place(t);
  for (const nonsense of [{ timeout: 0 }, { timeout: NaN }, { memoryLimit: 512 }, { memoryLimit: -1 }, { networkEnabled: 'yes' as unknown as boolean }]) {
    assert.throws(() => getSandboxExecutor({ workdir: workspace, ...nonsense }));
  }
  await assert.rejects(run('true', { workspace, timeout: 'soon' }), CouldNotRun);
  await assert.rejects(run('true', { workspace, env: { 'A=B': 'c' } }), TypeError);
  await assert.rejects(run('true', { workspace: join(workspace, 'absent') }), TypeError);
  await assert.rejects(run([], { workspace }), CouldNotRun);
  await assert.rejects(run(' ', { workspace }), CouldNotRun);
  assert.equal((await run('true', { workspace, timeout: 900, memory: 256 << 20, env: { A: 'b=c' } })).exitCode, 0);
});

/** Other tests of this machine may have such files, too. */
function ownFile(name: string): boolean {
  try {
    return readFileSync(join(tmpdir(), name, 'sandbox.policy.yaml'), 'utf8').includes('nobody pushes');
  } catch {
    return false;
  }
}

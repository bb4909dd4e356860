// One call of the binary: words in, capped output back. Never through a shell.

import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';

import { BinaryNotFound, CouldNotRun, ProtocolError } from './errors.js';

/** More than any outcome: both outputs at their usual cap, escaped, with room for the policy. */
const LARGEST_REPLY = 64 << 20;
const LARGEST_TALK = 1 << 20;

/** The kernel takes no single word above 128 KiB. */
const LONGEST_WORD = 128 * 1024 - 1;

export interface Reply {
  code: number;
  stdout: string;
  stderr: string;
}

export interface CallOptions {
  stdin?: string | Uint8Array | undefined;
  /** Ending the call ends the run. */
  signal?: AbortSignal | undefined;
}

export async function call(binary: string, words: readonly string[], options: CallOptions = {}): Promise<Reply> {
  checkWords(words);
  options.signal?.throwIfAborted();
  const child = spawn(binary, words, { stdio: ['pipe', 'pipe', 'pipe'], shell: false, windowsHide: true });
  const stop = () => {
    // Asked, not killed: the binary then ends the program and leaves nothing behind.
    child.kill('SIGTERM');
  };
  options.signal?.addEventListener('abort', stop, { once: true });
  try {
    // The program may not want all of its input; its outcome says what it made of that.
    child.stdin.on('error', () => {});
    child.stdin.end(options.stdin ?? '');
    const ended = new Promise<number>((resolve, reject) => {
      child.on('error', (cause: NodeJS.ErrnoException) => {
        reject(
          cause.code === 'ENOENT'
            ? new BinaryNotFound(`${binary} is gone`, { hint: 'install it again', cause })
            : new CouldNotRun(`could not start ${binary}: ${cause.message}`, { kind: 'start', cause }),
        );
      });
      child.on('close', (code, signal) => resolve(code ?? (signal === null ? 125 : 128)));
    });
    const [code, stdout, stderr] = await Promise.all([
      ended,
      read(child.stdout, LARGEST_REPLY),
      read(child.stderr, LARGEST_TALK),
    ]);
    if (stdout.overflowed) throw new ProtocolError(`ringfence printed more than ${LARGEST_REPLY} bytes`);
    return { code, stdout: stdout.text, stderr: stderr.text };
  } finally {
    options.signal?.removeEventListener('abort', stop);
  }
}

function checkWords(words: readonly string[]): void {
  for (const word of words) {
    if (typeof word !== 'string') throw new TypeError(`an argument is text, not ${typeof word}`);
    if (word.includes('\0')) {
      throw new CouldNotRun('an argument has a NUL in it, which no program can be given', { kind: 'badRequest' });
    }
    if (Buffer.byteLength(word) > LONGEST_WORD) {
      throw new CouldNotRun(`an argument is longer than ${LONGEST_WORD} bytes`, {
        kind: 'badRequest',
        advice: 'Write it into a file of the workspace, and name that.',
      });
    }
  }
}

/** Reads to the end, keeps up to a cap: a pipe that nobody reads would hold the binary up. */
async function read(stream: Readable, cap: number): Promise<{ text: string; overflowed: boolean }> {
  const kept: Buffer[] = [];
  let size = 0;
  let overflowed = false;
  for await (const piece of stream as AsyncIterable<Buffer>) {
    if (size + piece.length > cap) {
      overflowed = true;
    } else {
      kept.push(piece);
      size += piece.length;
    }
  }
  return { text: Buffer.concat(kept).toString('utf8'), overflowed };
}

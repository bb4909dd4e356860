// One call for one command, for code that already has an executor of this shape.

import { exitCodeOf, type Outcome } from './outcome.js';
import type { SandboxPolicy } from './policy.js';
import { run } from './run.js';
import { sizeWord, timeWord, type Backend, type Size, type Time } from './words.js';

export interface ExecutorOptions {
  /** The wall. `auto` takes the best that this host has; `spawn` and `none` are no walls and have to be accepted below. */
  mode?: Backend;
  /** Milliseconds, or a text such as `30s`. At most the policy's `max_timeout`. */
  timeout?: Time;
  /** Bytes, or a text such as `512MiB`. At most the policy's `memory`. */
  memoryLimit?: Size;
  /**
   * `false`, the default: no network. `true`: the hosts that the policy lists, and no others. It opens nothing: when the
   * policy has `net.mode: none`, `execute` throws `Refused`, whose hint says how a person grants it.
   */
  networkEnabled?: boolean;
  /** The folder that the program works in. */
  workdir?: string;
  /**
   * `true`, the default: the program cannot write to the system, only to its workspace. Every wall keeps that; `spawn` and
   * `none` cannot, and are refused until you write `false`, which accepts that the host's files can be written.
   */
  readOnlyRoot?: boolean;
  policy?: string | SandboxPolicy;
  env?: Readonly<Record<string, string>>;
  binary?: string;
}

export interface ExecuteResult {
  /** The program's own; 124 time limit, 127 not found, 128+n signal. */
  exitCode: number;
  stdout: string;
  stderr: string;
  timedOut: boolean;
  /** All that is known. */
  outcome: Outcome;
}

export interface SandboxExecutor {
  /** Runs a program with arguments; no shell reads them. Throws when it is refused or cannot be run. */
  execute(cmd: string, args?: readonly string[], more?: { stdin?: string | Uint8Array; signal?: AbortSignal }): Promise<ExecuteResult>;
}

const NO_WALLS: readonly Backend[] = ['spawn', 'none'];

export function getSandboxExecutor(options: ExecutorOptions = {}): SandboxExecutor {
  const { mode = 'auto', networkEnabled = false, readOnlyRoot = true } = options;
  // Read early, so that a mistake is told where it was written.
  if (options.timeout !== undefined) timeWord(options.timeout);
  if (options.memoryLimit !== undefined) sizeWord(options.memoryLimit);
  if (typeof networkEnabled !== 'boolean' || typeof readOnlyRoot !== 'boolean') {
    throw new TypeError('`networkEnabled` and `readOnlyRoot` are true or false');
  }
  const walled = !NO_WALLS.includes(mode);
  if (!walled) {
    if (readOnlyRoot) {
      throw new TypeError(
        `mode '${mode}' is no wall: the program could write wherever you can; use 'auto', or accept that with readOnlyRoot: false`,
      );
    }
    process.emitWarning(`mode '${mode}' is no wall: programs run on this machine as you, with your files and your network`, {
      type: 'NotSandboxed',
    });
  }
  return {
    async execute(cmd, args = [], more = {}) {
      const outcome = await run([cmd, ...args], {
        ...more,
        backend: mode,
        timeout: options.timeout,
        memory: options.memoryLimit,
        network: networkEnabled ? 'allowlist' : 'none',
        workspace: options.workdir,
        policy: options.policy,
        env: options.env,
        binary: options.binary,
      });
      return {
        exitCode: exitCodeOf(outcome),
        stdout: outcome.stdout,
        stderr: outcome.stderr,
        timedOut: outcome.timedOut,
        outcome,
      };
    },
  };
}

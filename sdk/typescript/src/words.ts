// Words for the binary. Every value is in one word with its flag, and a program's words stand behind `--`: nothing that a
// model says can become a flag.

import { realpathSync, statSync } from 'node:fs';

import { CouldNotRun } from './errors.js';

/** A shell line, or a program and its arguments, which no shell reads. */
export type Command = string | readonly string[];
/** Milliseconds, or a text such as `30s` that the binary reads. */
export type Time = number | string;
/** Bytes, or a text such as `512MiB`; `512m`, as Docker writes it, is 512 MiB. */
export type Size = number | string;
export type Language = 'bash' | 'python' | 'javascript' | 'typescript';
export type Backend = 'auto' | 'native' | 'docker' | 'podman' | 'landlock' | 'microvm' | 'kubernetes' | 'spawn' | 'none';

/** What narrows the policy. The binary refuses what would widen it. */
export interface Limits {
  memory?: Size | undefined;
  cpus?: number | undefined;
  processes?: number | undefined;
  /** How the workspace is shown: as the policy says, or less. */
  mode?: 'read-only' | 'ephemeral' | undefined;
  network?: 'none' | 'allowlist' | 'open' | undefined;
  /** Only these of the hosts that the policy allows. */
  allowHosts?: readonly string[] | undefined;
}

const LANGUAGES: readonly string[] = ['bash', 'python', 'javascript', 'typescript'];

export function timeWord(time: Time): string {
  if (typeof time === 'string') return time;
  if (!Number.isFinite(time) || time <= 0) {
    throw new RangeError(`${time} is no time: write milliseconds, such as 30000, or a text such as '30s'`);
  }
  return `${Math.ceil(time)}ms`;
}

export function sizeWord(size: Size): string {
  if (typeof size === 'string') {
    const docker = /^(\d+)([kmg])$/i.exec(size);
    return docker ? `${docker[1]}${docker[2]!.toUpperCase()}iB` : size;
  }
  if (!Number.isSafeInteger(size) || size <= 0) {
    throw new RangeError(`${size} is no size: write bytes, or a text such as '512MiB'`);
  }
  // Nothing runs in less than a MiB: somebody meant MiB and would have been told something obscure.
  if (size < 1 << 20) throw new RangeError(`${size} means bytes here; write '${size}MiB' if you mean that`);
  return String(size);
}

export function option(name: string, value: string | number | undefined): string[] {
  return value === undefined ? [] : [`--${name}=${value}`];
}

export function limitWords(limits: Limits): string[] {
  return [
    ...option('memory', limits.memory === undefined ? undefined : sizeWord(limits.memory)),
    ...option('cpus', limits.cpus),
    ...option('processes', limits.processes),
    ...option('mode', limits.mode),
    ...option('net', limits.network),
    ...(limits.allowHosts ?? []).map((host) => `--allow-host=${host}`),
  ];
}

export function variableWords(env: Readonly<Record<string, string>> = {}): string[] {
  return Object.entries(env).map(([name, value]) => {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) throw new TypeError(`${JSON.stringify(name)} is no name of a variable`);
    return `--env=${name}=${value}`;
  });
}

/** The end of a call: a shell line, or `--` and a program's words. */
export function commandWords(command: Command): string[] {
  if (typeof command === 'string') {
    if (command.trim() === '') throw new CouldNotRun('the command is empty', { kind: 'badRequest' });
    // A shell takes a line that begins so for options of its own, and not for the line that was judged.
    return [/^[-+]/.test(command) ? `--shell= ${command}` : `--shell=${command}`];
  }
  if (!Array.isArray(command) || !command[0]) throw new CouldNotRun('the command is empty', { kind: 'badRequest' });
  return ['--', ...(command as readonly string[])];
}

/** The end of a call for code, which is then written to standard input: it may be long, and `ps` shows no one's code. */
export function codeWords(language: Language): string[] {
  if (!LANGUAGES.includes(language)) throw new TypeError(`${language} is no language that can be run: ${LANGUAGES.join(', ')}`);
  return [`--lang=${language}`, '-'];
}

/** A folder of the host, absolute: a relative one would be looked up elsewhere after a change of directory. */
export function folder(path: string): string {
  let full: string;
  try {
    full = realpathSync(path);
  } catch (cause) {
    throw new TypeError(`${JSON.stringify(path)} is no folder`, { cause });
  }
  if (!statSync(full).isDirectory()) throw new TypeError(`${JSON.stringify(path)} is no folder`);
  return full;
}

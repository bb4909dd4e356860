// One run in a sandbox of its own.

import { findBinary } from './binary.js';
import { call, type Reply } from './call.js';
import { fromTalk } from './errors.js';
import { parseOutcome, raiseForStatus, type Outcome } from './outcome.js';
import { PolicyFile, type SandboxPolicy } from './policy.js';
import {
  codeWords,
  commandWords,
  folder,
  limitWords,
  option,
  sizeWord,
  timeWord,
  variableWords,
  type Backend,
  type Command,
  type Language,
  type Limits,
  type Size,
  type Time,
} from './words.js';

/** What can be said about each run. */
export interface PerRun {
  timeout?: Time | undefined;
  /** How much of each of stdout and stderr is kept. */
  output?: Size | undefined;
  env?: Readonly<Record<string, string>> | undefined;
  /** The folder below the workspace to start in. */
  cwd?: string | undefined;
  stdin?: string | Uint8Array | undefined;
  /** Ending it ends the run. */
  signal?: AbortSignal | undefined;
}

/** Where and under what a sandbox stands. */
export interface Where extends Limits {
  /** The folder of the host that the program works in; the current one if it is not named. */
  workspace?: string | undefined;
  /** The operator's word: a file, or what would stand in one. Everything else only narrows it. */
  policy?: string | SandboxPolicy | undefined;
  backend?: Backend | undefined;
  /** The binary, instead of `RINGFENCE_BIN` or the one on `PATH`. */
  binary?: string | undefined;
}

export type RunOptions = Where & PerRun;

/** Runs a command. Throws when it is refused or cannot be run; a program that fails is an outcome. */
export async function run(command: Command, options: RunOptions = {}): Promise<Outcome> {
  return one(commandWords(command), options, options.stdin);
}

/** Runs code in a language. */
export async function runCode(language: Language, code: string, options: Omit<RunOptions, 'stdin'> = {}): Promise<Outcome> {
  return one(codeWords(language), options, undefined, code);
}

async function one(end: string[], options: RunOptions, stdin?: string | Uint8Array, code?: string): Promise<Outcome> {
  const binary = findBinary(options.binary);
  const start = whereWords(options);
  const file = new PolicyFile(options.policy);
  try {
    const words = ['run', '--json', ...start, ...option('policy', file.path), ...perRunWords(options, stdin), ...end];
    const reply = await call(binary, words, { stdin: code ?? stdin, signal: options.signal });
    return raiseForStatus(outcomeOf(reply));
  } finally {
    file.remove();
  }
}

export function whereWords(where: Where): string[] {
  const workspace = folder(where.workspace ?? process.cwd());
  return [`--workspace=${workspace}`, ...option('backend', where.backend), ...limitWords(where)];
}

export function perRunWords(options: PerRun, stdin: string | Uint8Array | undefined): string[] {
  return [
    ...option('timeout', options.timeout === undefined ? undefined : timeWord(options.timeout)),
    ...option('output', typeof options.output === 'string' ? sizeWord(options.output) : options.output),
    ...option('cwd', options.cwd),
    ...variableWords(options.env),
    ...(stdin === undefined ? [] : ['--stdin']),
  ];
}

/** The JSON decides; without any, the binary itself has failed before there was a run. */
export function outcomeOf(reply: Reply): Outcome {
  if (reply.stdout.trim() === '') throw fromTalk(reply.code, reply.stderr);
  return parseOutcome(reply.stdout);
}

// A sandbox that is kept for many runs.

import { findBinary } from './binary.js';
import { call } from './call.js';
import { CouldNotRun, ProtocolError, fromTalk } from './errors.js';
import { raiseForStatus, type Outcome } from './outcome.js';
import { PolicyFile } from './policy.js';
import { outcomeOf, perRunWords, whereWords, type PerRun, type Where } from './run.js';
import { codeWords, commandWords, option, timeWord, type Command, type Language, type Time } from './words.js';

export interface SessionOptions extends Where {
  /** End when nothing ran for this long. */
  idle?: Time | undefined;
  /** End after this long. */
  life?: Time | undefined;
}

/** What `apply` did. */
export interface Applied {
  changed: { path: string }[];
  /** What was held back, and why: a person looks at it and uses `ringfence apply --include-flagged`. */
  left: { path: string; why: string; reason: string; advice: string }[];
  [key: string]: unknown;
}

/**
 * A live sandbox: `await Session.start(...)`, and `stop()` at the end (or `await using`). Several runs may be under way at
 * once. What is written stays in the sandbox until it is applied.
 */
export class Session implements AsyncDisposable {
  readonly name: string;
  /** The id by which `ringfence diff` and `ringfence apply` know what was changed. */
  readonly id: string;
  readonly #binary: string;
  #stopped: Promise<void> | undefined;

  private constructor(binary: string, name: string, id: string) {
    this.#binary = binary;
    this.name = name;
    this.id = id;
  }

  static async start(options: SessionOptions = {}): Promise<Session> {
    const binary = findBinary(options.binary);
    const words = [
      ...whereWords(options),
      ...option('idle', options.idle === undefined ? undefined : timeWord(options.idle)),
      ...option('life', options.life === undefined ? undefined : timeWord(options.life)),
    ];
    const file = new PolicyFile(options.policy);
    try {
      const reply = await call(binary, ['session', 'start', '--json', ...words, ...option('policy', file.path)]);
      if (reply.code !== 0) {
        raiseForStatus(outcomeOf(reply));
        throw fromTalk(reply.code, reply.stderr);
      }
      const said = object(reply.stdout);
      const { name, id } = said;
      if (typeof name !== 'string' || !/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name) || typeof id !== 'string') {
        throw new ProtocolError('ringfence started a session and did not say which');
      }
      return new Session(binary, name, id);
    } finally {
      // It was read when the session started.
      file.remove();
    }
  }

  /** Runs a shell line (a text) or a program and its arguments (a list, which no shell reads). */
  async exec(command: Command, options: PerRun = {}): Promise<Outcome> {
    return this.#exec([...perRunWords(options, options.stdin), ...commandWords(command)], options.stdin, options.signal);
  }

  /** Runs code in a language. */
  async execCode(language: Language, code: string, options: Omit<PerRun, 'stdin'> = {}): Promise<Outcome> {
    return this.#exec([...perRunWords(options, undefined), ...codeWords(language)], code, options.signal);
  }

  /** Ends the session and everything in it. Stopping twice is harmless. */
  async stop(): Promise<void> {
    this.#stopped ??= (async () => {
      const reply = await call(this.#binary, ['session', 'stop', '--', this.name]);
      if (reply.code !== 0) throw fromTalk(reply.code, reply.stderr);
    })();
    return this.#stopped;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** What was changed and waits for review, as `ringfence diff --json` says it; `undefined` when nothing was. */
  async changes(): Promise<Record<string, unknown> | undefined> {
    await this.#ended();
    const kept = await this.#say(['changes', '--json']);
    const all: unknown = JSON.parse(kept);
    if (!Array.isArray(all) || !all.some((one: { run?: unknown }) => one.run === this.id)) return undefined;
    return object(await this.#say(['diff', '--json', '--', this.id]));
  }

  /** Brings to the workspace what was changed and is not flagged. What the host would execute later is never applied from here. */
  async apply(): Promise<Applied> {
    await this.#ended();
    return object(await this.#say(['apply', '--json', '--', this.id], [0, 1])) as unknown as Applied;
  }

  async #ended(): Promise<void> {
    if (this.#stopped === undefined) throw new CouldNotRun('what a session changed is known when it was stopped');
    await this.#stopped;
  }

  async #say(words: string[], good: readonly number[] = [0]): Promise<string> {
    const reply = await call(this.#binary, words);
    if (!good.includes(reply.code)) throw fromTalk(reply.code, reply.stderr);
    return reply.stdout;
  }

  async #exec(words: string[], stdin: string | Uint8Array | undefined, signal: AbortSignal | undefined): Promise<Outcome> {
    if (this.#stopped !== undefined) throw new CouldNotRun('the session was stopped');
    const reply = await call(this.#binary, ['session', 'exec', '--json', this.name, ...words], { stdin, signal });
    return raiseForStatus(outcomeOf(reply));
  }
}

function object(json: string): Record<string, unknown> {
  let said: unknown;
  try {
    said = JSON.parse(json);
  } catch (cause) {
    throw new ProtocolError('ringfence printed no JSON', { cause });
  }
  if (typeof said !== 'object' || said === null || Array.isArray(said)) throw new ProtocolError('ringfence printed JSON of another kind');
  return said as Record<string, unknown>;
}

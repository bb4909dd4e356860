// What is thrown. A program that fails throws nothing: its outcome says so. We refused (`Refused`) and we could not
// (`CouldNotRun` and the others) are never mixed with that.

import type { Outcome, Refusal } from './outcome.js';

/** The root of what this package throws. `hint` is for a person, `advice` for a model. */
export class RingfenceError extends Error {
  readonly hint: string | undefined;
  readonly advice: string | undefined;

  constructor(message: string, more: { hint?: string | undefined; advice?: string | undefined; cause?: unknown } = {}) {
    super(more.hint === undefined ? message : `${message}\n\nhint: ${more.hint}`, { cause: more.cause });
    this.name = new.target.name;
    this.hint = more.hint;
    this.advice = more.advice;
  }
}

/** There is no `ringfence` to start. Nothing is ever run without it. */
export class BinaryNotFound extends RingfenceError {}

/** The policy says no. Trying the same again leads to the same answer. */
export class Refused extends RingfenceError {
  readonly refusal: Refusal;
  readonly outcome: Outcome | undefined;

  constructor(refusal: Refusal, outcome?: Outcome) {
    super(`refused: ${refusal.subject}: ${refusal.reason} (rule ${refusal.rule})`, {
      hint: refusal.hint ?? undefined,
      advice: refusal.advice ?? undefined,
    });
    this.refusal = refusal;
    this.outcome = outcome;
  }
}

/** The binary was there and could not do it: no wall, no such session, an argument that it does not take. */
export class CouldNotRun extends RingfenceError {
  readonly kind: string;
  readonly outcome: Outcome | undefined;

  constructor(
    message: string,
    more: { kind?: string; hint?: string | undefined; advice?: string | undefined; outcome?: Outcome; cause?: unknown } = {},
  ) {
    super(message, more);
    this.kind = more.kind ?? 'failed';
    this.outcome = more.outcome;
  }
}

/** The binary said something that this version of the package does not understand, or far too much. */
export class ProtocolError extends RingfenceError {}

/** An error from what the binary says on standard error where it prints no JSON: its own words, no program's. */
export function fromTalk(code: number, talk: string): RingfenceError {
  const found = /\n\s*hint: ([\s\S]*)$/.exec(talk);
  const hint = found?.[1]?.replace(/\s+/g, ' ').trim();
  const head = (found ? talk.slice(0, found.index) : talk).trim().replace(/^(error|refused): /, '');
  if (code !== 126) {
    return new CouldNotRun(head || `ringfence ended with ${code} and said nothing`, { hint });
  }
  const field = (name: string) => new RegExp(`^  ${name}\\s+(.*)$`, 'm').exec(talk)?.[1]?.trim();
  const subject = head.split('\n')[0] || 'the request';
  return new Refused({
    subject,
    rule: field('rule') ?? 'unknown',
    reason: field('reason') ?? subject,
    place: null,
    hint: hint ?? null,
    advice: 'Ask for no more than is allowed, or ask the person you work for.',
    retryable: false,
  });
}

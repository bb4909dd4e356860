// What the binary prints with `--json`, as types.

import { CouldNotRun, ProtocolError, Refused } from './errors.js';

/** How a run can end. An ending that is not listed is an error, never a success. */
export const STATUSES = [
  'exited',
  'signalled',
  'timedOut',
  'outOfMemory',
  'tooManyProcesses',
  'cancelled',
  'refused',
  'couldNotRun',
] as const;
export type Status = (typeof STATUSES)[number];

export interface Violation {
  rule: string;
  message: string;
}

/** A guarantee that held, with its evidence. */
export interface Enforced {
  guarantee: string;
  strength: string;
  evidence: string;
}

/** Why the policy said no: the rule, its place, and what to do instead. */
export interface Refusal {
  subject: string;
  rule: string;
  reason: string;
  place: { file: string; line: number; column: number } | null;
  hint: string | null;
  advice: string | null;
  retryable: boolean;
}

/** Why nothing could be run. */
export interface Failure {
  kind: string;
  chain: string[];
  hint: string | null;
}

/** A host that the program wanted to reach, and what was decided. */
export interface Contact {
  host: string;
  port: number;
  allowed: boolean;
  rule: string;
  count: number;
  method?: string;
  path?: string;
}

/** How one run ended, what it used, what it violated, and what was really enforced. Newer binaries may say more. */
export interface Outcome {
  runId: string;
  status: Status;
  exitCode: number | null;
  signal: number | null;
  stdout: string;
  stderr: string;
  /** The exact bytes where they are no text. */
  stdoutBase64?: string;
  stderrBase64?: string;
  timedOut: boolean;
  oomKilled: boolean;
  outputTruncated: boolean;
  workspaceChanged: boolean;
  changes: { added: number; changed: number; removed: number } | null;
  resourceUsage: {
    wallTimeMs: number;
    cpuTimeMs: number;
    memoryPeakBytes: number;
    bytesRead: number;
    bytesWritten: number;
  };
  effectivePolicy: Record<string, unknown>;
  enforced: Enforced[];
  notEnforced: string[];
  violations: Violation[];
  network?: Contact[];
  /** Hosts that the request names, where its program failed and there is no network. */
  unreachable?: string[];
  refusal: Refusal | null;
  error: Failure | null;
  advice: string | null;
  retryable: boolean;
  backend: string | null;
  startedAt: string;
  envWithheld: string[];
}

type Check = (value: unknown) => boolean;
const text: Check = (value) => typeof value === 'string';
const flag: Check = (value) => typeof value === 'boolean';
const number: Check = (value) => typeof value === 'number' && Number.isInteger(value);
const list: Check = (value) => Array.isArray(value);
const record: Check = (value) => typeof value === 'object' && value !== null && !Array.isArray(value);
const or = (check: Check): Check => (value) => value === null || check(value);

/** The fields without which an outcome says nothing. Absent or of another type: an error, never a default. */
const NEEDED: Record<string, Check> = {
  runId: text,
  status: (value) => (STATUSES as readonly unknown[]).includes(value),
  exitCode: or(number),
  signal: or(number),
  stdout: text,
  stderr: text,
  timedOut: flag,
  oomKilled: flag,
  outputTruncated: flag,
  workspaceChanged: flag,
  changes: or(record),
  resourceUsage: record,
  effectivePolicy: record,
  enforced: list,
  notEnforced: list,
  violations: list,
  refusal: or(record),
  error: or(record),
  advice: or(text),
  retryable: flag,
  backend: or(text),
  startedAt: text,
  envWithheld: list,
};

export function parseOutcome(json: string): Outcome {
  let said: unknown;
  try {
    said = JSON.parse(json);
  } catch (cause) {
    throw new ProtocolError('ringfence printed no JSON', { cause });
  }
  if (!record(said)) throw new ProtocolError('ringfence printed JSON that is no outcome');
  const fields = said as Record<string, unknown>;
  for (const [name, check] of Object.entries(NEEDED)) {
    if (!(name in fields) || !check(fields[name])) {
      throw new ProtocolError(`ringfence printed an outcome whose \`${name}\` makes no sense`, {
        hint: 'use a package and a binary of the same version',
      });
    }
  }
  return fields as unknown as Outcome;
}

/** Throws when we refused or could not; a program that failed, or was not found, is an outcome like any other. */
export function raiseForStatus(outcome: Outcome): Outcome {
  if (outcome.status === 'refused') {
    if (outcome.refusal === null) throw new ProtocolError('ringfence refused and did not say why');
    throw new Refused(outcome.refusal, outcome);
  }
  if (outcome.error !== null && outcome.error.kind !== 'notFound') {
    throw new CouldNotRun(outcome.error.chain.join(': ') || 'could not run', {
      kind: outcome.error.kind,
      hint: outcome.error.hint ?? undefined,
      advice: outcome.advice ?? undefined,
      outcome,
    });
  }
  return outcome;
}

/** The exit code that the command line would have: 124 time limit, 125 we failed, 126 refused, 127 not found, 128+n signal. */
export function exitCodeOf(outcome: Outcome): number {
  // It ran, and nothing shows how it ended: nobody may take that for success.
  if (outcome.error?.kind === 'ledger') return 125;
  switch (outcome.status) {
    case 'exited':
      return outcome.exitCode ?? 125;
    case 'timedOut':
      return 124;
    case 'refused':
      return 126;
    case 'couldNotRun':
      return outcome.error?.kind === 'notFound' ? 127 : outcome.error?.kind === 'badRequest' ? 2 : 125;
    case 'signalled':
    case 'outOfMemory':
    case 'tooManyProcesses':
    case 'cancelled':
      return 128 + (outcome.signal ?? 9);
  }
}

// A policy that was made by a program, as a file for the binary.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

/** A rule for a host, as under `net.allow`. */
export type HostRule = string | ({ host: string; methods?: string[]; paths?: string[]; ports?: number[] } & Record<string, unknown>);

/**
 * What stands in a `sandbox.policy.yaml`. The fields that are used most have types; the binary checks all of them, and
 * refuses a key that it does not know. The reference is `ringfence policy schema`.
 */
export interface SandboxPolicy {
  version?: 1;
  extends?: string[];
  backend?: string | Record<string, unknown>;
  fs?: {
    workspace?: { path?: string; mode?: 'review' | 'direct' | 'ephemeral' | 'read-only' };
    mounts?: Record<string, unknown>[];
    deny?: string[];
    protect?: string | string[];
    size?: string;
  } & Record<string, unknown>;
  net?: { mode?: 'none' | 'allowlist' | 'open'; allow?: HostRule[]; localhost?: number[]; unix?: string[] } & Record<string, unknown>;
  proc?: {
    user?: string;
    cpus?: number;
    memory?: string;
    processes?: number;
    timeout?: string;
    max_timeout?: string;
    output?: string;
    env?: { pass?: string[]; set?: Record<string, string> };
  } & Record<string, unknown>;
  commands?: Record<string, unknown>[];
  tools?: { allow?: string[] };
  overrides?: { grantable?: string[] };
  [key: string]: unknown;
}

/** A file that the binary can read, for as long as it is needed. JSON is YAML, so nothing has to be translated. */
export class PolicyFile {
  readonly path: string | undefined;
  #folder: string | undefined;

  constructor(policy: string | SandboxPolicy | undefined) {
    if (policy === undefined) return;
    if (typeof policy === 'string') {
      this.path = resolve(policy);
      return;
    }
    if (policy === null || typeof policy !== 'object' || Array.isArray(policy)) {
      throw new TypeError('a policy is the path of a file, or an object with what would stand in one');
    }
    // A folder that only its owner can enter: the policy must not be changed by others meanwhile.
    this.#folder = mkdtempSync(join(tmpdir(), 'ringfence-policy-'));
    this.path = join(this.#folder, 'sandbox.policy.yaml');
    writeFileSync(this.path, JSON.stringify({ version: 1, ...policy }), { mode: 0o600, flag: 'wx' });
  }

  remove(): void {
    if (this.#folder !== undefined) rmSync(this.#folder, { recursive: true, force: true });
    this.#folder = undefined;
  }
}

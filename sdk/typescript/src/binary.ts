// Finding the binary. It is found or nothing is run: there is no way around it.

import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';

import { BinaryNotFound } from './errors.js';

const VARIABLE = 'RINGFENCE_BIN';
const WHAT_TO_DO =
  `install ringfence so that \`ringfence\` is on PATH, or set ${VARIABLE} to its path, or pass \`binary\`; ` +
  '`ringfence doctor` then says whether this host can raise walls';

/**
 * The absolute path of the binary: the argument, then `RINGFENCE_BIN`, then `PATH`. A place that was named and is empty is
 * an error: falling through to another binary would run one that nobody chose.
 */
export function findBinary(binary?: string): string {
  if (binary !== undefined) return named(binary, 'the option `binary`');
  const variable = process.env[VARIABLE];
  if (variable !== undefined) return named(variable, VARIABLE);
  for (const folder of (process.env['PATH'] ?? '').split(delimiter)) {
    const file = join(folder, 'ringfence');
    // An empty entry would mean the current folder, which may be a workspace.
    if (folder !== '' && isProgram(file)) return resolve(file);
  }
  throw new BinaryNotFound('there is no `ringfence` on PATH', { hint: WHAT_TO_DO });
}

function named(path: string, by: string): string {
  if (path === '') throw new BinaryNotFound(`${by} is empty`, { hint: WHAT_TO_DO });
  if (!isProgram(path)) throw new BinaryNotFound(`${by} names ${JSON.stringify(path)}, which is no program`, { hint: WHAT_TO_DO });
  return resolve(path);
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

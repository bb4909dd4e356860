export { findBinary } from './binary.js';
export { BinaryNotFound, CouldNotRun, ProtocolError, Refused, RingfenceError } from './errors.js';
export { aiSdkTools, type AiSdk, type Told } from './frameworks.js';
export { getSandboxExecutor, type ExecuteResult, type ExecutorOptions, type SandboxExecutor } from './executor.js';
export {
  STATUSES,
  exitCodeOf,
  parseOutcome,
  type Contact,
  type Enforced,
  type Failure,
  type Outcome,
  type Refusal,
  type Status,
  type Violation,
} from './outcome.js';
export type { HostRule, SandboxPolicy } from './policy.js';
export { run, runCode, type PerRun, type RunOptions, type Where } from './run.js';
export { Session, type Applied, type SessionOptions } from './session.js';
export type { Backend, Command, Language, Limits, Size, Time } from './words.js';
export { sandboxOptions, sandboxQuery, type SandboxQuery, type SandboxQueryParams } from './query.js';
export { SANDBOX_TOOLS, judgeTool, sandboxTool, type Verdict } from './tools.js';

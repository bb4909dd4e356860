//! Ringfence's policy: what a sandboxed program may do.
//!
//! A policy file is parsed ([`parse`]), several layers are resolved to one ([`resolve`]), and what comes with a call may
//! only make it narrower ([`narrow`]). Pure: nothing here reads a file, the environment or the clock.

mod budget;
mod canonical;
mod command;
mod compare;
mod credential;
mod demand;
mod diagnostic;
mod entry;
mod environment;
mod file;
mod floor;
mod fs;
mod grant;
mod header;
mod host;
mod image;
mod init;
mod lint;
mod name;
mod narrow;
mod order;
mod overrides;
mod path;
mod policy;
mod prepared;
mod preset;
mod propose;
mod reader;
mod resolve;
mod runtime;
mod schema;
mod section;
mod shape;
mod show;
mod units;
mod upstream;
mod user;
mod validate;
mod variable;
mod way;
mod words;
mod yaml;

pub use budget::{NetBudget, Per, Rate};
pub use command::{
    CommandRule, ExampleOutcome, ExampleResult, Expected, Reading, TestResult, Verdict, check_tests, decide,
};
pub use compare::{Change, Direction, compare};
pub use credential::{CredentialPolicy, SecretSource, SecretUse};
pub use diagnostic::{Diagnostic, Invalid, Severity};
pub use environment::{ALIASES, RESERVED_VARIABLES, VARIABLES, environment_layer};
pub use file::{FsFile, NetFile, PolicyFile, ProcFile, Written, parse};
pub use grant::Grant;
pub use host::{HostPattern, NetRule};
pub use image::{Image, ImageKind, check_root};
pub use init::starter;
pub use lint::lint;
pub use narrow::{Widening, narrow};
pub use overrides::{EnvOverrides, FsOverrides, NetOverrides, Overrides, ProcOverrides};
pub use path::{Glob, LiteralPath, check_socket, check_source};
pub use policy::*;
pub use preset::default_text;
pub use propose::{NetAddition, NotWritable};
pub use resolve::{LayerInput, resolve};
pub use runtime::Runtime;
pub use schema::{json_schema, overrides_schema};
pub use show::show;
pub use units::{Bytes, Cpus, TimeSpan, UnitError};
pub use upstream::{Upstream, UpstreamHost};
pub use validate::{ValidateFile, ValidateLevel, ValidatePolicy};
pub use words::{NotPlain, split_commands, split_words};

//! The `ringfence` program: front doors and output only. What may run, and how, is decided in the library.

mod apply;
mod approver;
mod args;
mod cache;
mod changes;
mod chatter;
mod check;
mod chosen;
mod diff;
mod doctor;
mod ended;
mod explain;
mod foresee;
mod generate;
mod hook;
mod image;
mod init;
mod learn;
mod log;
mod mcp;
mod policy;
mod printer;
mod question;
mod render;
mod run;
mod session;
mod setup;
mod stdin;
mod stop_signals;
mod streams;
mod terminal;
mod told;
mod undo;

use std::process::ExitCode;

use crate::args::{Args, Command};

/// How long an end waits for the kernel to put the last guest away.
const LAST_WAIT: std::time::Duration = std::time::Duration::from_millis(200);

/// We failed: the program of a run did not, and policy did not refuse.
const OUR_FAILURE: u8 = 125;

fn main() -> ExitCode {
    // Before anything else: in a container there is nothing that anything else could need, and little memory.
    if ringfence::far_guest::is_meant(std::env::args_os()) {
        let error = ringfence::far_guest::live_far();
        chatter::error(&error);
        return ExitCode::from(error.exit_code());
    }
    if std::env::args_os().nth(1).is_some_and(|word| word == setup::LAUNCHER) {
        return match ringfence::launcher::serve() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(OUR_FAILURE),
        };
    }
    // The wall takes longer than all that comes before it, so it is begun before the flags are read.
    let launcher = setup::launcher(std::env::args_os());
    let args = Args::read();
    let done = match args.command {
        Command::Run(run) => run::run(*run, launcher),
        Command::Session(command) => session::session(command),
        Command::Checkpoint(command) => session::checkpoint::checkpoint(command),
        Command::Diff(diff) => diff::diff(&diff),
        Command::Apply(apply) => apply::apply(&apply),
        Command::Undo(undo) => undo::undo(&undo),
        Command::Changes(args) => changes::changes(args),
        Command::Discard { runs, all } => changes::throw_away_named(&runs, all),
        Command::Cache(command) => cache::cache(command),
        Command::Policy(command) => policy::policy(command),
        Command::Init(args) => init::init(&args),
        Command::Hook(args) => Ok(hook::hook(&args)),
        Command::Explain(args) => explain::explain(&args),
        Command::Learn(args) => learn::learn(&args),
        Command::Image(command) => image::image(command),
        Command::Log(command) => log::log(command),
        Command::Mcp(args) => mcp::mcp(&args),
        Command::Doctor(doctor) => doctor::doctor(&doctor),
        Command::Check(check) => check::check(&check),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { out } => generate::man(&out),
    };
    // Last of all: everything has been said, and nobody but us may know how to.
    ringfence::reap_guests(LAST_WAIT);
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            chatter::error(&*error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// An error that ends the program, with its exit code and what to do.
trait Fatal: std::error::Error {
    fn exit_code(&self) -> u8 {
        OUR_FAILURE
    }

    fn hint(&self) -> Option<String> {
        None
    }

    /// More than one line about it, instead of the chain of causes.
    fn details(&self) -> Option<String> {
        None
    }
}

impl Fatal for ringfence::far_guest::NotAGuest {
    fn exit_code(&self) -> u8 {
        2
    }

    fn hint(&self) -> Option<String> {
        Some("run `ringfence run --help` to see how a command is run behind a wall".to_owned())
    }
}

type Done = Result<u8, Box<dyn Fatal>>;

impl<E: Fatal + 'static> From<E> for Box<dyn Fatal> {
    fn from(error: E) -> Self {
        Box::new(error)
    }
}

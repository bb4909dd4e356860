//! Ringfence's own chores, started as `cargo xtask …`.
//!
//! Depends on nothing but the standard library: it is the first thing that a fresh machine compiles. It writes only
//! under the target folder and in temporary folders, and fetches a tool only into `target/tools`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for developers: talking to them is its job")]

mod ahead;
mod bench;
mod clients;
mod docs;
mod engines;
mod footprint;
mod fuzz;
mod kernels;
mod order;
mod ordinary_user;
mod readme;
mod static_binary;
mod step;
mod test;
mod tidy;
mod tools;
mod workspace;

use std::process::ExitCode;

use step::{Failure, Screen, Verbosity};
use workspace::Workspace;

const USAGE: &str = "\
Usage: cargo xtask COMMAND

  test  [--only STEP,…] [--skip STEP,…] [--list] [--verbose]
                         everything that must pass: format, lints, dependencies, tests, documents
  tidy                   the house rules that no other tool knows
  bench [NAME…]          measure against the targets; NAME is a bench program or a crate
  fuzz  [TARGET] [--seconds N]
                         fuzz one target or all of them (60 seconds each unless told)
  engines start|stop|env the container engines of the tests, for work by hand, in target/engines/live;
                         `env` prints the variables that lead tests to them
  engines images NAME…   builds images of ours in them, runs in them, and takes them away; for work by hand, as
                         each takes a minute or more
  kernels [RELEASE…]     whether the wall holds on the kernels of Debian's releases, in machines that qemu emulates; needs root
                         and takes minutes for each
  order                  in which order a start comes to the functions of the program, for the linker; after changes
                         that starts notice, and with another compiler
  docs  [--check]        man pages, completions and schema into target/docs-generated;
                         `--check` only compares the committed schema
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((command, rest)) = words.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    if matches!(*command, "help" | "--help" | "-h") || rest.iter().any(|word| matches!(*word, "--help" | "-h")) {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let done = match *command {
        "test" => parse_test(rest).and_then(|choice| test::test(&Workspace::find()?, &choice)),
        "tidy" => none_left(rest).and_then(|()| tidy::report(&Workspace::find()?)),
        "bench" => only_names(rest).and_then(|names| bench::bench(&Workspace::find()?, names)),
        "fuzz" => parse_fuzz(rest).and_then(|choice| {
            fuzz::fuzz(&Workspace::find()?, &choice, &mut Screen::new(Verbosity::Everything)).map(|line| {
                println!("{line}");
                ExitCode::SUCCESS
            })
        }),
        "engines" => match rest {
            ["start"] => Workspace::find().and_then(|workspace| engines::start(&workspace)),
            ["stop"] => Workspace::find().and_then(|workspace| engines::stop(&workspace)),
            ["env"] => Workspace::find().and_then(|workspace| engines::env(&workspace)),
            ["images", names @ ..] => Workspace::find().and_then(|workspace| engines::images(&workspace, names)),
            [other, ..] => Err(unknown(other)),
            [] => Err(Failure::new("say `cargo xtask engines start`, `stop`, `env` or `images NAME…`")),
        },
        "kernels" => only_names(rest).and_then(|names| kernels::try_all(&Workspace::find()?, names)),
        "order" => none_left(rest).and_then(|()| order::write(&Workspace::find()?)),
        "docs" => match rest {
            [] => Workspace::find().and_then(|workspace| docs::write(&workspace)),
            ["--check"] => Workspace::find().and_then(|workspace| {
                println!("{}", docs::check(&workspace, &mut Screen::new(Verbosity::Summary))?);
                Ok(ExitCode::SUCCESS)
            }),
            [other, ..] => Err(unknown(other)),
        },
        other => Err(unknown(other)),
    };
    done.unwrap_or_else(|failure| {
        eprint!("{}", failure.output);
        eprintln!("error: {}", failure.what);
        ExitCode::FAILURE
    })
}

fn unknown(word: &str) -> Failure {
    Failure::new(format!("`{word}` is not known here; `cargo xtask help` lists the commands"))
}

fn none_left(rest: &[&str]) -> Result<(), Failure> {
    rest.first().map_or(Ok(()), |word| Err(unknown(word)))
}

fn only_names<'a>(rest: &'a [&'a str]) -> Result<&'a [&'a str], Failure> {
    rest.iter().find(|word| word.starts_with('-')).map_or(Ok(rest), |word| Err(unknown(word)))
}

fn parse_test(rest: &[&str]) -> Result<test::Choice, Failure> {
    let mut choice = test::Choice::default();
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match *word {
            "--verbose" | "-v" => choice.verbosity = Verbosity::Everything,
            "--list" => choice.list = true,
            "--only" => choice.only = test::step_names(words.next().copied())?,
            "--skip" => choice.skip = test::step_names(words.next().copied())?,
            other => match other.split_once('=') {
                Some(("--only", names)) => choice.only = test::step_names(Some(names))?,
                Some(("--skip", names)) => choice.skip = test::step_names(Some(names))?,
                _ => return Err(unknown(other)),
            },
        }
    }
    Ok(choice)
}

fn parse_fuzz(rest: &[&str]) -> Result<fuzz::Choice, Failure> {
    let mut choice = fuzz::Choice { target: None, seconds: 60 };
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match *word {
            "--seconds" => {
                choice.seconds =
                    words.next().and_then(|number| number.parse().ok()).filter(|seconds| *seconds > 0).ok_or_else(
                        || Failure::new("`--seconds` needs a whole number above 0, such as `--seconds 600`"),
                    )?;
            }
            flag if flag.starts_with('-') => return Err(unknown(flag)),
            name if choice.target.is_none() => choice.target = Some(name.to_owned()),
            extra => return Err(unknown(extra)),
        }
    }
    Ok(choice)
}

//! Completions and man pages, from the command line's own definition.

use std::io;
use std::path::{Path, PathBuf};

use clap::CommandFactory;

use crate::args::Args;
use crate::{Done, Fatal, chatter};

#[derive(Debug, thiserror::Error)]
enum GenerateFailure {
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
    #[error("could not write man pages to {path}")]
    Man { path: PathBuf, source: io::Error },
}

impl Fatal for GenerateFailure {}

pub(crate) fn completions(shell: clap_complete::Shell) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "ringfence", &mut script);
    chatter::data(&String::from_utf8_lossy(&script)).map_err(GenerateFailure::Output)?;
    Ok(0)
}

pub(crate) fn man(out: &Path) -> Done {
    let failed = |source| GenerateFailure::Man { path: out.to_owned(), source };
    std::fs::create_dir_all(out).map_err(failed)?;
    clap_mangen::generate_to(Args::command(), out).map_err(failed)?;
    Ok(0)
}

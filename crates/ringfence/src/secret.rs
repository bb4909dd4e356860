//! Gets secrets of credentials, on the host and right before they are needed. They go to the proxy and nowhere else: what is
//! said about them names where they come from and nothing of what they are.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ringfence_policy::SecretSource;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use zeroize::Zeroizing;

/// A longer secret does not fit into a header.
const MOST_BYTES: usize = 16 * 1024;
/// A command may have to ask a person for a password.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a secret cannot be had, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// A rule names a credential that nobody defined.
    #[error(
        "nothing says where the credential `{0}` comes from; define it under `credentials:` in your own policy file, `~/.config/ringfence/policy.yaml`"
    )]
    Undefined(String),
    /// A rule would send it to a host that it is not for.
    #[error("the credential `{name}` is not for {host}; take it out of the rule, or add the host where it is defined")]
    NotFor {
        /// The credential.
        name: String,
        /// The host of the rule.
        host: String,
    },
    /// The variable is not set, or empty.
    #[error("the secret of the credential `{name}` is missing: set the variable {variable} for whoever starts the run")]
    NoVariable {
        /// The credential.
        name: String,
        /// The variable.
        variable: String,
    },
    /// The file cannot be read.
    #[error("the secret of the credential `{name}` is missing: {} cannot be read ({source})", path.display())]
    NoFile {
        /// The credential.
        name: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program is not on the path.
    #[error(
        "the secret of the credential `{name}` is missing: `{program}` was not found; install it, or name it from the root"
    )]
    NoProgram {
        /// The credential.
        name: String,
        /// The program.
        program: String,
    },
    /// The command failed. What it said is not repeated: it may hold the secret.
    #[error("the secret of the credential `{name}` is missing: `{program}` {ended}; run it by hand to see why")]
    Command {
        /// The credential.
        name: String,
        /// The program.
        program: String,
        /// How it ended.
        ended: String,
    },
    /// It is no text, or too long.
    #[error("the secret of the credential `{name}` is not one line of text of at most 16 KiB")]
    NotText {
        /// The credential.
        name: String,
    },
    /// It is not fit for a header.
    #[error("the secret of the credential `{name}` cannot be used")]
    Unfit {
        /// The credential.
        name: String,
        /// Why.
        source: ringfence_egress::BadCredential,
    },
}

/// The secret of the credential `name`, without the line's end.
pub(crate) async fn fetch(name: &str, from: &SecretSource, workspace: &Path) -> Result<Zeroizing<String>, SecretError> {
    let bytes = match from {
        SecretSource::Env(variable) => {
            let missing = || SecretError::NoVariable { name: name.to_owned(), variable: variable.clone() };
            let value = std::env::var_os(variable).filter(|value| !value.is_empty()).ok_or_else(missing)?;
            Zeroizing::new(value.into_encoded_bytes())
        }
        SecretSource::File(path) => read_file(path.as_path()).map_err(|source| SecretError::NoFile {
            name: name.to_owned(),
            path: path.as_path().to_owned(),
            source,
        })?,
        SecretSource::Keyring { service, account } => {
            let words = ["lookup", "service", service, "account", account].map(str::to_owned);
            ask(name, "secret-tool", &words, workspace).await?
        }
        SecretSource::Command(words) => {
            let (program, words) = words.split_first().ok_or_else(|| SecretError::NotText { name: name.to_owned() })?;
            ask(name, program, words, workspace).await?
        }
    };
    let unfit = || SecretError::NotText { name: name.to_owned() };
    let text = std::str::from_utf8(&bytes).map_err(|_| unfit())?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() || text.len() > MOST_BYTES {
        return Err(unfit());
    }
    Ok(Zeroizing::new(text.to_owned()))
}

fn read_file(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    // Without waiting: the name may be a pipe's.
    let file = File::options().read(true).custom_flags(libc_nonblock()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST_BYTES + 2));
    file.take(u64::try_from(MOST_BYTES + 2).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn libc_nonblock() -> i32 {
    i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default()
}

/// What a command prints.
async fn ask(name: &str, program: &str, words: &[String], workspace: &Path) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    let failed = |ended: String| SecretError::Command { name: name.to_owned(), program: program.to_owned(), ended };
    let path = find(program, workspace)
        .ok_or_else(|| SecretError::NoProgram { name: name.to_owned(), program: program.to_owned() })?;
    let mut command = Command::new(path);
    // Not in the workspace: what a program looks for beside itself must not be a project's.
    command.args(words).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child =
        command.kill_on_drop(true).spawn().map_err(|error| failed(format!("could not be started ({error})")))?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(MOST_BYTES + 2));
    let stdout = child.stdout.take();
    let answer = async {
        if let Some(stdout) = stdout {
            stdout.take(u64::try_from(MOST_BYTES + 2).unwrap_or(u64::MAX)).read_to_end(&mut bytes).await?;
        }
        // Who says too much need not be waited for: it ends when nobody holds it.
        if bytes.len() > MOST_BYTES + 1 { Ok(None) } else { child.wait().await.map(Some) }
    };
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(None)) => Err(SecretError::NotText { name: name.to_owned() }),
        Ok(Ok(Some(status))) if status.success() => Ok(bytes),
        Ok(Ok(Some(status))) => Err(failed(format!("ended with {status}"))),
        Ok(Err(error)) => Err(failed(format!("could not be waited for ({error})"))),
        Err(_) => Err(failed("did not answer within a minute".to_owned())),
    }
}

/// A program by its path from the root, or by its name in the folders of the path that are named from the root. Never one of the
/// workspace, whose `.venv/bin` may well be on the path: what a sandbox or a repository put there does not run here.
fn find(program: &str, workspace: &Path) -> Option<PathBuf> {
    // The name may be a link, and the workspace be reached by one.
    let is_ours = |path: &PathBuf| {
        path.canonicalize().is_ok_and(|real| {
            let outside = !real.starts_with(workspace) && !path.starts_with(workspace);
            outside && real.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
        })
    };
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_absolute() && is_ours(path));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(program)).find(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> SecretSource {
        SecretSource::Command(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[tokio::test]
    async fn a_secret_comes_from_a_file_or_a_command_without_its_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "s3cret-of-a-file\n").unwrap();
        let from = SecretSource::File(file.to_str().unwrap().parse().unwrap());
        assert_eq!(fetch("k", &from, Path::new("/nowhere")).await.unwrap().as_str(), "s3cret-of-a-file");
        let from = command(&["sh", "-c", "echo s3cret-of-a-command; echo hidden >&2"]);
        assert_eq!(fetch("k", &from, Path::new("/nowhere")).await.unwrap().as_str(), "s3cret-of-a-command");
    }

    #[test]
    fn nothing_of_the_workspace_runs_for_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().canonicalize().unwrap();
        let planted = workspace.join("tool");
        std::fs::write(&planted, "#!/bin/sh\necho planted\n").unwrap();
        std::fs::set_permissions(&planted, std::fs::Permissions::from_mode(0o755)).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("tool");
        std::os::unix::fs::symlink(&planted, &link).unwrap();
        for path in [&planted, &link] {
            assert_eq!(find(path.to_str().unwrap(), &workspace), None);
            assert_eq!(find(path.to_str().unwrap(), Path::new("/nowhere")).as_ref(), Some(path), "the twin");
        }
        assert!(find("sh", &workspace).is_some());
    }

    #[tokio::test]
    async fn what_cannot_be_had_is_said_with_what_to_do_and_without_the_secret() {
        let missing = SecretSource::Env("RINGFENCE_TEST_NOT_SET".to_owned());
        assert!(
            fetch("k", &missing, Path::new("/nowhere"))
                .await
                .unwrap_err()
                .to_string()
                .contains("set the variable RINGFENCE_TEST_NOT_SET")
        );
        let missing = SecretSource::File("/nonexistent/token".parse().unwrap());
        assert!(
            fetch("k", &missing, Path::new("/nowhere")).await.unwrap_err().to_string().contains("/nonexistent/token")
        );
        let fails = command(&["sh", "-c", "echo half-a-s3cret; echo half-a-s3cret >&2; exit 7"]);
        let error = fetch("k", &fails, Path::new("/nowhere")).await.unwrap_err().to_string();
        assert!(error.contains("by hand") && error.contains('7') && !error.contains("s3cret"), "{error}");
        for odd in [
            command(&["sh", "-c", "printf '\\377\\376'"]),
            command(&["sh", "-c", "head -c 99999 /dev/zero"]),
            command(&["true"]),
        ] {
            assert!(matches!(fetch("k", &odd, Path::new("/nowhere")).await, Err(SecretError::NotText { .. })));
        }
        for program in ["./token", "no-such-program-here"] {
            assert!(
                matches!(
                    fetch("k", &command(&[program]), Path::new("/nowhere")).await,
                    Err(SecretError::NoProgram { .. })
                ),
                "{program}"
            );
        }
    }
}

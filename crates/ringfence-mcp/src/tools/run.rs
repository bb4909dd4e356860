//! `sandboxed_code_run`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence::request::InputFile;
use ringfence::{Language, Request, Stdin, Work};
use ringfence_policy::{Overrides, TimeSpan};
use serde::Deserialize;
use serde_json::json;

use super::inside::{self, below};
use super::{Problem, Said};
use crate::artifact;
use crate::call::Call;
use crate::tell;

const MOST_FILES: usize = 256;
const MOST_ARTIFACTS: usize = 8;

/// What it takes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Arguments {
    code: Option<String>,
    language: Option<Language>,
    command: Option<String>,
    argv: Option<Vec<String>>,
    timeout: Option<Timeout>,
    stdin: Option<String>,
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    files: Vec<FileArgument>,
    #[serde(default)]
    artifacts: Vec<String>,
    #[serde(alias = "policy_overrides")]
    policy_overrides: Option<Overrides>,
    #[serde(alias = "sandbox_id")]
    sandbox_id: Option<String>,
}

/// A time limit: seconds, or with a unit.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Timeout {
    Seconds(f64),
    Text(String),
}

impl Timeout {
    fn read(&self) -> Result<TimeSpan, Problem> {
        match self {
            Self::Seconds(seconds) => Duration::try_from_secs_f64(*seconds)
                .map_err(|error| Problem::fixable(format!("the time limit makes no sense: {error}")))
                .and_then(|time| TimeSpan::new(time).map_err(|error| Problem::fixable(error.to_string()))),
            Self::Text(text) => text.parse().map_err(|error| Problem::fixable(format!("{error}"))),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileArgument {
    path: String,
    content: String,
    #[serde(default)]
    encoding: Encoding,
}

/// How bytes are written in a text.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Encoding {
    #[default]
    Utf8,
    Base64,
}

impl Encoding {
    pub(super) fn decode(self, text: String) -> Result<Vec<u8>, Problem> {
        match self {
            Self::Utf8 => Ok(text.into_bytes()),
            Self::Base64 => {
                STANDARD.decode(text).map_err(|error| Problem::fixable(format!("the content is no base64: {error}")))
            }
        }
    }
}

/// What is to be run, of the ways to say it.
pub(super) fn work(
    code: Option<String>,
    language: Option<Language>,
    command: Option<String>,
    argv: Option<Vec<String>>,
) -> Result<Work, Problem> {
    let one = "give exactly one of `code` with `language`, `command` or `argv`";
    match (code, language, command, argv) {
        (Some(code), Some(language), None, None) => {
            Ok(Work::Code { language, source: code.into_bytes(), name: None, interpreter: None })
        }
        (Some(_), None, None, None) => Err(Problem::fixable("`code` needs `language`")),
        (None, None, Some(command), None) => Ok(Work::Shell(command)),
        (None, None, None, Some(argv)) => Ok(Work::Argv(argv.into_iter().map(OsString::from).collect())),
        _ => Err(Problem::fixable(one)),
    }
}

pub(super) async fn run(call: &Call, arguments: Arguments) -> Result<Said, Problem> {
    let place = inside::place(call, arguments.sandbox_id.as_deref()).await?;
    let work = work(arguments.code, arguments.language, arguments.command, arguments.argv)?;
    let mut request = Request::new(work);
    request.overrides = arguments.policy_overrides.unwrap_or_default();
    if let Some(timeout) = &arguments.timeout {
        if request.overrides.proc.timeout.is_some() {
            return Err(Problem::fixable("the time limit is given twice, as `timeout` and in `policyOverrides`"));
        }
        request.overrides.proc.timeout = Some(timeout.read()?);
    }
    if let Some(stdin) = arguments.stdin {
        request.stdin = Stdin::Bytes(stdin.into_bytes());
    }
    if let Some(cwd) = &arguments.cwd {
        request.cwd = below(cwd)?;
    }
    request.env = arguments.env.into_iter().collect();
    if arguments.files.len() > MOST_FILES {
        return Err(Problem::fixable(format!("there are more than {MOST_FILES} files")));
    }
    for FileArgument { path, content, encoding } in arguments.files {
        request.files.push(InputFile { path: path.into(), content: encoding.decode(content)? });
    }
    if arguments.artifacts.len() > MOST_ARTIFACTS {
        return Err(Problem::fixable(format!("at most {MOST_ARTIFACTS} pictures are returned")));
    }
    if !arguments.artifacts.is_empty() && place.is_none() {
        return Err(Problem::fixable("`artifacts` is for sandboxes that are kept")
            .advise("Leave it out: without `sandboxId` pictures that the program wrote are returned by themselves."));
    }
    let outcome = inside::carry_out(call, place.as_ref(), request).await?;
    let mut structured = tell::json(&outcome);
    let mut text = tell::text(&outcome);
    let found = match &place {
        None => artifact::of_run(call, &outcome).await,
        Some(sandbox) => artifact::of_sandbox(call, sandbox, &arguments.artifacts).await,
    };
    if !found.listed.is_empty() {
        structured["artifacts"] = json!(found.listed);
    }
    for note in found.notes {
        text.push_str(&format!("\n{note}"));
    }
    Ok(Said { text, structured, well: tell::is_well(&outcome), more: found.content, mark: tell::mark(&outcome) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use super::*;

    #[test]
    fn exactly_one_way_to_say_what_to_run() {
        let (code, language, line) = (Some("1".to_owned()), Some(Language::Python), Some("ls".to_owned()));
        assert!(matches!(work(code.clone(), language, None, None), Ok(Work::Code { .. })));
        assert!(matches!(work(None, None, line.clone(), None), Ok(Work::Shell(_))));
        assert!(matches!(work(None, None, None, Some(vec!["ls".to_owned()])), Ok(Work::Argv(_))));
        for (code, language, line) in
            [(code.clone(), None, None), (None, language, None), (code, language, line.clone()), (None, language, line)]
        {
            assert!(work(code, language, line, None).is_err());
        }
        assert!(work(None, None, None, None).is_err());
    }

    #[test]
    fn what_is_not_known_is_refused_and_what_is_known_is_read() {
        let read = |text: &str| serde_json::from_str::<Arguments>(text);
        assert!(read(r#"{"command":"ls","timeout":"5s","sandbox_id":"x"}"#).is_ok());
        for bad in [
            r#"{"command":"ls","time_out":5}"#,
            r#"{"command":"ls","workspace":"/"}"#,
            r#"{"command":"ls","policyOverrides":{"grants":[]}}"#,
            r#"{"command":"ls","policyOverrides":{"net":{"mode":"none","more":1}}}"#,
            r#"{"command":"ls","files":[{"path":"a","content":"","mode":7}]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_limit_is_seconds_or_has_a_unit() {
        let read = |json: &str| serde_json::from_str::<Timeout>(json).unwrap().read();
        assert_eq!(read("1.5").unwrap().get(), Duration::from_millis(1500));
        assert_eq!(read("\"2m\"").unwrap().get(), Duration::from_secs(120));
        for bad in ["0", "-1", "1e300", "\"5 parsecs\""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}

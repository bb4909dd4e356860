//! What a request would do, found by reading it; knows no policy. The reading itself is `ringfence-validate`'s.

use std::path::Path;

use ringfence_policy::ResolvedPolicy;
pub use ringfence_validate::{Analysis, Does, Step, Surroundings};
use ringfence_validate::{Contact, Fact, Language as Read, Limits, Span, Subject, Text};

use crate::language::{Language, NamedInterpreter};
use crate::links;
use crate::request::{Request, Work, WorkspaceAt};

/// Where walls show the workspace unless somebody says otherwise.
const WORKSPACE: &str = "/workspace";

/// Reads `work`, and nothing else.
pub fn analyse(work: &Work, surroundings: &Surroundings) -> Analysis {
    let limits = Limits::default();
    let read = |subject| ringfence_validate::analyse(subject, surroundings, &limits);
    match work {
        Work::Argv(argv) => {
            let argv: Vec<String> = argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
            read(Subject::Argv(&argv))
        }
        Work::Shell(line) => read(Subject::Shell(line)),
        // Bytes that are not text become marks that no language has.
        Work::Code { language, source, interpreter, name } => {
            let source = String::from_utf8_lossy(source);
            let code = read(match language {
                Language::Bash => Subject::Shell(&source),
                Language::Python => Subject::Code { language: Read::Python, source: &source },
                Language::Javascript => Subject::Code { language: Read::JavaScript, source: &source },
                Language::Typescript => Subject::Code { language: Read::TypeScript, source: &source },
            });
            let file = name.as_deref().unwrap_or(language.default_file_name());
            match interpreter {
                Some(interpreter) => started_by(interpreter, file, code),
                None => code,
            }
        }
        Work::Place => Analysis::default(),
    }
}

/// What `code` does when the interpreter that was named for it runs it: a command like any other, which rules can speak of.
fn started_by(interpreter: &NamedInterpreter, file: &str, code: Analysis) -> Analysis {
    let argv = interpreter.words(file).map(Text::known).collect();
    let does = Does::Command { argv };
    Analysis { steps: vec![Step { span: Span::default(), does, facts: Vec::new(), inner: code.steps }] }
}

/// Likewise, with where its paths lead through links on this machine. `workspace` is the host's folder.
pub(crate) fn analyse_here(
    work: &Work,
    surroundings: &Surroundings,
    workspace: &Path,
    policy: &ResolvedPolicy,
) -> Analysis {
    let mut analysis = analyse(work, surroundings);
    links::follow(&mut analysis, surroundings, workspace, policy);
    analysis
}

/// Where a request would run: the same words mean the same files inside and outside.
pub fn surroundings(request: &Request, workspace: &Path, home: Option<&Path>) -> Surroundings {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let inside = match &request.workspace_at {
        WorkspaceAt::Default => WORKSPACE.to_owned(),
        WorkspaceAt::Same => text(workspace),
        WorkspaceAt::Path(path) => text(path),
    };
    let mut workspaces = vec![inside.clone()];
    if !workspaces.contains(&text(workspace)) {
        workspaces.push(text(workspace));
    }
    let usual = Surroundings::default();
    Surroundings {
        directory: text(&Path::new(&inside).join(&request.cwd)).trim_end_matches('/').to_owned(),
        workspaces,
        home: home.filter(|home| home.is_absolute()).map_or(usual.home, text),
    }
}

/// Hosts that are told of, at most.
const MOST_HOSTS: usize = 3;

/// The hosts that a request speaks to by names that stand in it, for a person or a model to read. Nothing is decided by them.
pub(crate) fn hosts(analysis: &Analysis) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for act in analysis.facts() {
        if let Fact::Contacts { place, contact, .. } = &act.fact
            && *contact != Contact::Listen
            && let Some(host) = place.as_known().and_then(host)
            && !hosts.iter().any(|known| known == host)
        {
            hosts.push(host.to_owned());
        }
    }
    hosts.truncate(MOST_HOSTS);
    hosts
}

/// The name in a host, `HOST:PORT` or URL; none for this machine itself, and for what no name looks like.
fn host(place: &str) -> Option<&str> {
    let after_scheme = place.split_once("://").map_or(place, |(_, rest)| rest);
    let authority = after_scheme.split(['/', '?', '#']).next()?;
    let after_user = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let name = after_user.split(':').next()?;
    let is_name = name.len() <= 253 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    (is_name && name.contains('.') && name.contains(|letter: char| letter.is_ascii_alphabetic())).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commands(work: &Work) -> Vec<String> {
        let analysis = analyse(work, &Surroundings::default());
        analysis
            .commands()
            .map(|(argv, _)| argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            .collect()
    }

    #[test]
    fn a_plain_line_gives_its_commands_and_a_shell_is_looked_into() {
        assert_eq!(commands(&Work::Shell("make && rm -rf build".to_owned())), ["make", "rm -rf build"]);
        let wrapped = Work::Argv(["/bin/bash", "-ec", "rm -rf /"].map(Into::into).to_vec());
        assert_eq!(commands(&wrapped), ["/bin/bash -ec rm -rf /", "rm -rf /"]);
    }

    #[test]
    fn an_interpreter_that_is_named_is_a_command_and_its_code_is_read_all_the_same() {
        let work = |language: Language, program: Option<&str>, source: &str| Work::Code {
            language,
            source: source.into(),
            name: None,
            interpreter: program.map(|program| language.interpreter(program).unwrap()),
        };
        let code = "import os; os.remove('/etc/passwd')";
        let named = work(Language::Python, Some("/opt/bin/python3.11"), code);
        assert_eq!(commands(&named), ["/opt/bin/python3.11 main.py"]);
        assert_eq!(commands(&work(Language::Typescript, Some("deno"), "1")), ["deno run main.ts"]);
        assert_eq!(commands(&work(Language::Bash, Some("dash"), "rm -rf /")), ["dash main.sh", "rm -rf /"]);
        let facts = |work: &Work| analyse(work, &Surroundings::default()).facts().count();
        assert_eq!(
            (facts(&named), commands(&work(Language::Python, None, code)).len()),
            (facts(&work(Language::Python, None, code)), 0)
        );
        assert!(facts(&named) > 0);
    }

    #[test]
    fn hosts_are_told_by_their_names_and_nothing_else_is() {
        let told = |line: &str| hosts(&analyse(&Work::Shell(line.to_owned()), &Surroundings::default()));
        assert_eq!(
            told("curl -s https://user@api.example.com:8443/v1 | jq . && git clone https://code.example/a/b"),
            ["api.example.com", "code.example"]
        );
        assert_eq!(
            told("curl http://localhost:3000/; curl http://127.0.0.1/; echo https://only.said.example"),
            [""; 0]
        );
        assert_eq!(told("curl https://$1.example"), [""; 0]);
        assert_eq!(told("curl a.example; curl b.example; curl c.example; curl d.example").len(), MOST_HOSTS);
        assert_eq!(host("https://a\u{1b}[2J.example/"), None);
    }

    #[test]
    fn commands_are_found_where_they_are_hidden() {
        for line in ["echo $(rm -rf /)", "eval 'rm -rf /'", "env X=1 rm -rf /", "x=rm; $x -rf /"] {
            let found = commands(&Work::Shell(line.to_owned()));
            assert!(found.iter().any(|command| command == "rm -rf /"), "{line}: {found:?}");
        }
    }

    #[test]
    fn the_workspace_is_known_by_its_name_inside_and_outside() {
        let request = Request::new(Work::Shell("ls".to_owned()));
        let found = surroundings(&request, Path::new("/srv/project"), Some(Path::new("/home/me")));
        assert_eq!(found.workspaces, ["/workspace", "/srv/project"]);
        assert_eq!((found.directory.as_str(), found.home.as_str()), ("/workspace", "/home/me"));
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_panic(line in ".*") {
            analyse(&Work::Shell(line.clone()), &Surroundings::default());
            analyse(&Work::Argv(vec!["sh".into(), "-c".into(), line.into()]), &Surroundings::default());
        }
    }
}
